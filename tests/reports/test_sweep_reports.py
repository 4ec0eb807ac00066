"""What is written of a sweep as a whole."""

from pathlib import Path

from example_estimates import GHOST, estimate
from example_findings import FLAT, STANDARD, run

from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison.findings.advice import Advice
from dpprof.reports.sweep_reports import write_sweep_reports


def test_the_estimates_of_a_larger_model_enter_the_verdict_and_nothing_else(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "mine")
    for made in (estimate(peak=5000), estimate(GHOST, peak=2000)):
        assert made.record is not None
        kept = folder.foreseen.run(made.config.run_name)
        kept.create(made.config)
        kept.write_record(made.record)
    data, _ = write_sweep_reports(folder, [run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40)])
    assert len(data.comparison.cells) == 2
    (advice,) = (found.data for found in data.findings if isinstance(found.data, Advice))
    assert advice.best is not None
    assert advice.best.trainer == GHOST
    summary = folder.summary_markdown.read_text(encoding="utf-8")
    assert "For 1b (1.23M parameters) on H200 (139.8 GiB)" in summary
    assert folder.runs() == []

"""What is written of a sweep as a whole."""

from pathlib import Path

from conftest import call_dpprof
from example_estimates import GHOST, estimate
from example_findings import FLAT, STANDARD, run

from dpprof.pages.sweep_reports import write_sweep_reports
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import SweepFolder


def kept(path: Path, *results: Result) -> SweepFolder:
    """A sweep's folder with the records of some results."""
    folder = SweepFolder(path)
    for made in results:
        assert made.record is not None
        of_run = folder.run(made.config.run_name)
        of_run.create(made.config)
        of_run.write_record(made.record)
    return folder


def test_the_estimates_of_a_larger_model_enter_the_verdict_and_nothing_else(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "mine")
    kept(folder.foreseen.path, estimate(peak=5000), estimate(GHOST, peak=2000))
    data = write_sweep_reports(folder, [run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40)]).data
    assert len(data.comparison.cells) == 2
    (advice,) = (found for found in data.findings if found.topic == "Estimate")
    assert advice.text.startswith("For a larger model, ")
    assert "start with ghost" in advice.text
    summary = folder.summary_markdown.read_text(encoding="utf-8")
    assert "larger model, 1b (1.23M parameters) on H200 (139.8 GiB)" in summary
    assert folder.runs() == []
    assert "larger model" not in folder.summary_json.read_text(encoding="utf-8")


def test_summarize_takes_them_for_no_sweep_and_export_has_them_in_its_summary(tmp_path: Path) -> None:
    sweep = kept(tmp_path / "mine", run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40))
    kept(sweep.foreseen.path, estimate(peak=5000), estimate(GHOST, peak=2000))
    for named in ("mine", "."):
        ended = call_dpprof(tmp_path, "summarize", named, "--format", "markdown")
        assert ended.returncode == 0, ended.stderr
        assert [line for line in ended.stdout.splitlines() if line.startswith("# ")] == ["# mine"]
        assert "start with ghost" in ended.stdout
    write_sweep_reports(sweep, map(read_result, sweep.runs()))
    ended = call_dpprof(tmp_path, "export", "mine", "--format", "markdown")
    assert ended.stdout == sweep.summary_markdown.read_text(encoding="utf-8")

"""Guarantees side by side: they tell apart nothing that is measured."""

import csv
import io
from typing import Any

from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.record.privacy import PrivacyResult
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.export import export
from dpprof.reports.comparison.markdown import to_markdown
from dpprof.reports.comparison.page import render

FIXED = "batches have a fixed size"


def run(trainer: str, privacy: PrivacyResult | None, **settings: Any) -> Result:
    made = result(trainer, step_s=0.1, peak_mib=3.0, dataset_size=10_000, batch_size=4, **settings)
    assert made.record is not None
    made.record.privacy = privacy
    return made


def spending(epsilon: float | None, why_none: str = "") -> PrivacyResult:
    return PrivacyResult(1.0, 4e-4, 2500, 1e-5, epsilon, "prv", why_none, [FIXED] if epsilon else [])


RUNS = (
    run("standard", None),
    run("flat", spending(0.12345)),
    run("ghost", spending(0.12345)),
    run("bk", spending(None, "2 of 8 losses are NaN")),
)


def test_a_row_for_each_guarantee_and_a_sentence_for_what_weakens_it() -> None:
    data = compute(comparison(*RUNS))
    assert [(row.trainer, row.epsilon) for row in data.privacy] == [
        ("DPSGDTrainer", "0.1235"),
        ("DPGhostClippingTrainer", "0.1235"),
        ("DPBookKeepingTrainer", "none"),
    ]
    assert [doubt for doubt in data.doubts if doubt.startswith("Privacy")] == [
        f"Privacy: {FIXED} (2 of 3 runs).",
        "Privacy: there is no epsilon: 2 of 8 losses are NaN (1 of 3 runs).",
    ]
    text, page = to_markdown(data), render(data)
    assert "## Privacy of the whole training" in text
    assert "0.0004" in text
    assert 'id="privacy"' in page
    for shown in (text, page):
        assert f"Privacy: {FIXED} (2 of 3 runs)." in shown
    without = compute(comparison(result("flat", step_s=0.1)))
    assert "Privacy" not in to_markdown(without)
    assert 'id="privacy"' not in render(without)


def test_runs_on_other_data_sets_compare() -> None:
    standard = result("standard", step_s=0.05, batch_size=4)
    found = comparison(standard, run("flat", spending(0.1)), run("flat", spending(0.2), epochs=2.0, name="b"))
    assert [len(place) for place in found.places] == [3]
    assert len({cell.experiment for cell in found.cells}) == 2
    assert found.varying == []
    assert [found.ratio(cell, "latency/step_ms_median") for cell in found.cells[1:]] == [2.0, 2.0]


def test_exports_have_the_figures_with_their_notes() -> None:
    found = comparison(*RUNS)
    rows = list(csv.DictReader(io.StringIO(export(found, "csv"))))
    assert [row["privacy/epsilon"] for row in rows] == ["", "0.12345", "0.12345", ""]
    assert rows[1]["privacy/notes"] == FIXED
    assert rows[3]["privacy/notes"] == "there is no epsilon: 2 of 8 losses are NaN"
    assert Comparison.from_json(export(found, "json")) == found

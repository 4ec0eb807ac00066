"""The tables beside the cells."""

import csv
import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from example_estimates import GHOST, both, estimate, measured
from example_results import comparison, groups_of, result

from dpprof.config.counter_metrics import DRAM_READ, DRAM_WRITTEN, L2_READ, L2_WRITTEN
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import compute
from dpprof.findings.comparison.doubts import doubts
from dpprof.findings.comparison.side_tables import judgement, pairs, without_paired
from dpprof.pages.comparison.export import export
from dpprof.pages.comparison.page import render
from dpprof.pages.comparison.summary import to_markdown
from dpprof.pages.comparison.tables import counter_table, side_tables
from dpprof.pages.document import Table
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.figures.names import FLOPS_IN_THEORY, FLOPS_OF_LAYERS
from dpprof.record.figures.results import Result
from dpprof.record.record import PassOutcome, PassStatus, PrivacyResult

MIB = 2**20
FLAT = "DPSGDTrainer"


def with_counters(trainer: str, ms: float, mib: Mapping[str, float], moved_mib: float = 0) -> Result:
    """A run whose one kernel moves some MiB by metric, while its operators ask for `moved_mib`."""
    made = result(trainer, step_s=0.01, moved=[("backward", "copy", moved_mib)] if moved_mib else ())
    scale = {DRAM_READ: MIB, DRAM_WRITTEN: MIB, L2_READ: MIB / 32, L2_WRITTEN: MIB / 32}
    values = {metric: value * scale[metric] for metric, value in mib.items()}
    assert made.record is not None
    made.record.counters = CounterResult([CounterRow("k", "copy", "backward", 1, ms / 1e3, values)])
    return made


@pytest.fixture
def counted() -> Comparison:
    return comparison(
        with_counters("StandardTrainer", 2, {DRAM_READ: 10, DRAM_WRITTEN: 4, L2_READ: 20}, moved_mib=28),
        with_counters(FLAT, 5, {DRAM_READ: 15, DRAM_WRITTEN: 12, L2_READ: 80}, moved_mib=54),
        with_counters(GHOST, 8, {DRAM_READ: 60, L2_WRITTEN: 7}),
    )


def rows_of(name: str, found: Comparison) -> list[Any]:
    """The rows of one table, without model, place and trainer."""
    tables = [part for part in side_tables(found) if isinstance(part, Table) and part.name == name]
    return [list(row[3:]) for table in tables for row in table.rows]


def test_where_the_measurement_disagrees_is_told_in_every_medium(counted: Comparison) -> None:
    _, *sentences = judgement(counted)
    place = "at tiny, batch 4, sequence 512"
    assert sentences == [
        f"DRAM read: below 2 times standard: DPSGDTrainer {place} (1.50).",
        f"DRAM read: above 5 times standard: DPGhostClippingTrainer {place} (6.00).",
        f"L2 read: above 3 times standard: DPSGDTrainer {place} (4.00).",
    ]
    assert [row[3:] for row in counter_table(counted).rows] == [
        ["2.00", "10.0", "1.00", "4.00", "1.00", "20.0", "1.00", "", "", "0.50"],
        ["5.00", "15.0", "1.50 below", "12.0", "3.00", "80.0", "4.00 above", "", "", "0.50"],
        ["8.00", "60.0", "6.00 above", "", "", "", "", "7.00", "", ""],
    ]
    for text in (to_markdown(compute(counted)), render(compute(counted))):
        assert "4.00 above" in text
        assert sentences[2] in text


def test_agreement_is_told_where_there_is_a_ratio() -> None:
    flat = with_counters(FLAT, 5, {DRAM_READ: 30})
    agreeing = comparison(with_counters("StandardTrainer", 2, {DRAM_READ: 10}), flat)
    assert "- What was counted agrees." in to_markdown(compute(agreeing))
    assert "agrees" not in to_markdown(compute(comparison(flat)))
    assert 'id="counters"' not in render(compute(comparison(result(step_s=0.01))))


def test_a_pass_that_a_machine_cannot_run_is_told_once() -> None:
    outcomes = {
        "clean": PassOutcome(PassStatus.FINISHED),
        "counters": PassOutcome(PassStatus.SKIPPED, "there is no ncu"),
    }
    found = comparison(result(step_s=0.01, outcomes=outcomes), result(FLAT, step_s=0.02, outcomes=outcomes))
    assert "No counters in 2 of 2 runs: there is no ncu." in doubts(found)
    assert doubts(Comparison.from_data(json.loads(found.to_json()))) == doubts(found)
    data = json.loads(found.to_json())
    for cell in data["cells"]:
        for run in cell["runs"]:
            del run["skipped_passes"]  # as exported before there were such passes
    assert Comparison.from_data(data).cells[0].runs[0].skipped_passes == {}


@pytest.mark.parametrize(("largest", "meet"), [(13, True), (9, False)])
def test_of_poisson_sampled_batches_only_equal_ones_meet(largest: int, meet: bool) -> None:
    guess = estimate(poisson_sampling=True, poisson_tail=1e-4)
    assert guess.config.estimated_batch == 13, "of 4 expected"
    truth = measured()
    assert truth.record is not None
    truth.record.step_samples = [3, largest]
    truth = dataclasses.replace(truth, config=dataclasses.replace(truth.config, poisson_sampling=True))
    assert bool(pairs(both(guess, truth))) is meet


def test_an_estimate_meets_the_measurement_of_the_same_experiment() -> None:
    (pair,) = pairs(both(estimate(), measured(), measured(GHOST)))
    assert (*pair.tensors, pair.tensors.off_pct) == (100, 100, 0)
    assert pair.allocator == (132, 132)
    assert (pair.step.estimated, pair.step.off_pct) == pytest.approx((2.0, -100 / 3))
    (pair,) = pairs(both(estimate(target="H100"), measured()))
    assert pair.step.estimated is None, "another device"
    assert pair.step.measured == pytest.approx(3.0)
    assert pairs(both(estimate(batch_size=8), measured())) == []


def test_an_estimate_does_not_meet_weights_of_another_type() -> None:
    guess, truth = estimate(weights={"bf16": 1}), measured()
    assert pairs(both(guess, truth)), "not known of an earlier version's run"
    assert truth.record is not None
    truth.record.parameters = groups_of({"fp32": 1})
    assert pairs(both(guess, truth)) == []
    assert len(without_paired(both(guess, truth)).cells) == 2
    assert len(without_paired(both(estimate(weights={"fp32": 1}), truth)).cells) == 1


def test_the_page_and_the_table_tell_estimates_from_measurements() -> None:
    data = compute(both(estimate(), measured()))
    text, html = to_markdown(data), render(data)
    alone, real = (render(compute(comparison(one))) for one in (estimate(), measured()))
    assert "2.00 (1.80 to 2.50)" in text
    assert "## Estimate and measurement" in text
    assert "needs 644.0 MiB: fits" in html
    for words, pages in (
        ("2.00 (1.80 to 2.50)", [html, alone]),
        ("batch 4, sequence 512, estimated for H200 (139.8 GiB)", [html, alone]),
        ("How this was measured", [html, real]),
        ("unobserved steps", [html, real]),
        ("How this was estimated", [alone]),
        ('<table id="pairs"', [html]),
    ):
        assert [page for page in (html, alone, real) if words in page] == pages, words


def test_theory_beside_what_was_counted() -> None:
    found = comparison(*(result(trainer, step_s=0.1) for trainer in ("StandardTrainer", "DPSGDTrainer")))
    assert rows_of("flops", found) == []
    for cell, theory, counted in zip(found.cells, (3e9, 4e9), (3e9, 4.1e9), strict=True):
        cell.figures.update({FLOPS_IN_THEORY: theory, FLOPS_OF_LAYERS: counted})
    assert rows_of("flops", found) == [["3.00", "1.00", "3.00", "+0.00"], ["4.00", "1.33", "4.10", "+2.50"]]
    assert "FLOPs of a step, attention apart" in to_markdown(compute(found))
    assert 'id="flops"' in render(compute(found))


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
    told = [["0.0004", "2,500", "1", epsilon, "1e-05"] for epsilon in ("0.1235", "0.1235", "none")]
    assert rows_of("privacy", data.comparison) == told
    assert [doubt for doubt in data.doubts if doubt.startswith("Privacy")] == [
        f"Privacy: {FIXED} (2 of 3 runs).",
        "Privacy: there is no epsilon: 2 of 8 losses are NaN (1 of 3 runs).",
    ]
    without = compute(comparison(result("flat", step_s=0.1)))
    for medium, title in ((to_markdown, "## Privacy of the whole training"), (render, 'id="privacy"')):
        assert title in medium(data)
        assert "0.0004" in medium(data)
        assert f"Privacy: {FIXED} (2 of 3 runs)." in medium(data)
        assert title not in medium(without)


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
    assert Comparison.from_data(json.loads(export(found, "json"))) == found

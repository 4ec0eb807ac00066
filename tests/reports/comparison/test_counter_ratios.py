import json
from collections.abc import Mapping

import pytest
from example_results import comparison, result

from dpprof.config.counter_metrics import DRAM_READ, DRAM_WRITTEN, L2_READ, L2_WRITTEN
from dpprof.figures.results import Result
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.record import PassOutcome
from dpprof.reports.comparison import page
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.counter_ratios import counter_rows, judgement
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.doubts import doubts
from dpprof.reports.comparison.markdown import counter_table, to_markdown

MIB = 2**20
FLAT, GHOST = "DPSGDTrainer", "DPGhostClippingTrainer"


def with_counters(trainer: str, ms: float, mib: Mapping[str, float], moved_mib: float = 0) -> Result:
    """A run whose one kernel moves some MiB by metric, while its operators ask for `moved_mib`."""
    made = result(trainer, step_s=0.01, moved=[("backward", "copy", moved_mib)] if moved_mib else ())
    scale = {DRAM_READ: MIB, DRAM_WRITTEN: MIB, L2_READ: MIB / 32, L2_WRITTEN: MIB / 32}
    values = {metric: value * scale[metric] for metric, value in mib.items()}
    assert made.record is not None
    made.record.counters = CounterResult([CounterRow("k", "copy", "backward", 1, ms / 1e3, values)])
    return made


@pytest.fixture
def measured() -> Comparison:
    return comparison(
        with_counters("StandardTrainer", 2, {DRAM_READ: 10, DRAM_WRITTEN: 4, L2_READ: 20}, moved_mib=28),
        with_counters(FLAT, 5, {DRAM_READ: 15, DRAM_WRITTEN: 12, L2_READ: 80}, moved_mib=54),
        with_counters(GHOST, 8, {DRAM_READ: 60, L2_WRITTEN: 7}),
    )


def test_bytes_and_ratios_to_standard(measured: Comparison) -> None:
    standard, flat, ghost = counter_rows(measured)
    assert [level.mib for level in standard.moved] == [10, 4, 20, None]
    assert [level.ratio for level in standard.moved] == [1, 1, 1, None]
    assert [level.side for level in standard.moved] == [None] * 4
    assert flat.kernel_ms == 5
    assert flat.dram_to_ledger == pytest.approx(0.5)
    assert [level.ratio for level in flat.moved] == pytest.approx([1.5, 3.0, 4.0, None])
    assert [level.side for level in flat.moved] == ["below", None, "above", None]
    assert [level.mib for level in ghost.moved] == [60, None, None, 7]
    assert [level.ratio for level in ghost.moved] == [6, None, None, None]
    assert ghost.dram_to_ledger is None


def test_where_the_measurement_disagrees(measured: Comparison) -> None:
    expected, *sentences = judgement(counter_rows(measured))
    assert expected.startswith("Commonly expected of DP-SGD")
    assert sentences == [
        "DRAM read: below 2 times standard: DPSGDTrainer at tiny, batch 4, sequence 512 (1.50).",
        "DRAM read: above 5 times standard: DPGhostClippingTrainer at tiny, batch 4, sequence 512 (6.00).",
        "L2 read: above 3 times standard: DPSGDTrainer at tiny, batch 4, sequence 512 (4.00).",
    ]


def test_markdown_and_page_show_the_same(measured: Comparison) -> None:
    text = to_markdown(compute(measured))
    assert "## Hardware counters of one step" in text
    assert "Commonly expected of DP-SGD: 2 to 5 times" in text
    flat = next(line for line in counter_table(compute(measured)).splitlines() if FLAT in line)
    cells = [cell.strip() for cell in flat.strip("|").split("|")]
    assert cells[3:] == ["5.00", "15.0", "1.50", "12.0", "3.00", "80.0", "4.00", "", "", "0.50"]
    html = page.render(compute(measured))
    assert 'id="counters"' in html
    assert "4.00<br>above" in html
    assert "L2 read: above 3 times standard" in html


def test_agreement_is_told_too() -> None:
    found = comparison(
        with_counters("StandardTrainer", 2, {DRAM_READ: 10}), with_counters(FLAT, 5, {DRAM_READ: 30})
    )
    assert "- What was counted agrees." in counter_table(compute(found))


def test_without_standard_there_is_no_ratio_and_nothing_agrees() -> None:
    found = comparison(with_counters(FLAT, 5, {DRAM_READ: 30}))
    assert [level.ratio for level in counter_rows(found)[0].moved] == [None] * 4
    assert "agrees" not in counter_table(compute(found))


def test_without_counters_there_is_no_table() -> None:
    found = comparison(result(step_s=0.01))
    assert counter_table(compute(found)) == ""
    assert 'id="counters"' not in page.render(compute(found))


def test_a_pass_that_a_machine_cannot_run_is_told_once() -> None:
    outcomes = {"clean": PassOutcome("finished"), "counters": PassOutcome("skipped", "there is no ncu")}
    found = comparison(result(step_s=0.01, outcomes=outcomes), result(FLAT, step_s=0.02, outcomes=outcomes))
    assert "No counters in 2 of 2 runs: there is no ncu." in doubts(found)
    again = Comparison.from_json(found.to_json())
    assert doubts(again) == doubts(found)
    data = json.loads(found.to_json())
    for cell in data["cells"]:
        for run in cell["runs"]:
            del run["skipped_passes"]  # as exported before there were such passes
    assert Comparison.from_json(json.dumps(data)).cells[0].runs[0].skipped_passes == {}

"""The roofline page, and where it is written."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from example_roofline import CEILINGS, COUNTERS, LEDGER, cell, comparison
from page_reader import Page, text_of
from svg_reader import Chart, read_logarithmic

from dpprof.findings import counter_tables
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import compare
from dpprof.findings.roofline import compute
from dpprof.pages import html as html_pages
from dpprof.pages.reports.roofline import page as page_of
from dpprof.pages.reports.roofline import run_roofline, write_sweep_roofline
from dpprof.pages.run_reports import write_run_reports
from dpprof.pages.sweep_reports import write_sweep_reports
from dpprof.record.counters import CounterResult
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Ceilings, Record
from dpprof.vocabulary.colors import trainer_color


def rendered(
    *cells: Cell, given: dict[str, float] | None = None, counted: CounterResult | None = None, name: str = "s"
) -> str:
    tables = None if counted is None else counter_tables.compute(counted, example_ledger.ledger())
    found = compute(dataclasses.replace(comparison(*cells), name=name), **(given or {}))
    return html_pages.page(page_of(found, tables))


def chart(html: str) -> Chart:
    found = read_logarithmic(html, "roofline")
    assert found is not None
    return found


def test_the_chart_draws_phases_with_flops_under_their_roof() -> None:
    drawn = chart(rendered(cell(LEDGER | CEILINGS)))
    (forward,) = drawn.marks
    assert (forward.x, forward.y) == near(16.0, 2**30 / 0.004 / 1e9)
    assert drawn.x_range[0] < forward.x < drawn.x_range[1]
    assert drawn.y_range[0] < forward.y < drawn.y_range[1]
    (roof,) = drawn.lines
    ridge = 0.5e12 / 2**35
    assert roof[1] == near(ridge, 500)
    assert roof[2] == near(drawn.x_range[1], 500)
    assert drawn.x_range[1] > ridge, "the flat part is in sight"
    assert roof[0] == near(drawn.x_range[0], drawn.x_range[0] * 2**35 / 1e9)
    assert drawn.notes == ["copy 32.0 GiB/s", "matmul 500.0 GFLOP/s"]
    assert drawn.titles == ["FLOP per byte", "GFLOP/s"]
    assert forward.title == [
        "forward",
        "StandardTrainer",
        "tiny, batch 4, sequence 512",
        "a CPU, fp32",
        "16.0 FLOP/byte",
        "268.4 GFLOP/s, 53.7 % of matmul",
        "15.6 GiB/s, 48.8 % of copy",
        "the ledger's bytes, wall time",
    ]


def near(x: float, y: float) -> Any:
    """To a hundredth of a pixel."""
    return pytest.approx((x, y), rel=2e-4)


def test_trainers_have_colours_and_phases_symbols() -> None:
    html = rendered(cell(LEDGER | CEILINGS), cell(LEDGER | CEILINGS, trainer="flat"))
    marks = chart(html).marks
    assert [mark.title[1] for mark in marks] == ["StandardTrainer", "DPSGDTrainer"]
    assert [mark.color for mark in marks] == list(map(trainer_color, ("StandardTrainer", "DPSGDTrainer")))
    assert len({mark.path for mark in marks}) == 1
    (legend,) = re.findall(r'<p class="legend">(.*?)</p>', html, re.S)
    assert text_of(legend) == "standard flat forward"
    assert marks[0].path in legend


def test_each_precision_has_a_roof_and_symbols_of_its_own() -> None:
    fast = CEILINGS | {"ceilings/matmul_tflop_per_s": 20.0}
    html = rendered(cell(LEDGER | CEILINGS), cell(LEDGER | fast, precision="bf16"))
    drawn = chart(html)
    assert len(set(drawn.dashes)) == 2
    assert [mark.is_open for mark in drawn.marks] == [False, True]
    assert drawn.notes == ["copy 32.0 GiB/s", "matmul fp32 500.0 GFLOP/s", "matmul bf16 20.0 TFLOP/s"]
    copy = ["32.0", "the highest of 2 runs, the lowest 32.0"]
    assert Page(html).tables["ceilings"][1:] == [
        ["a CPU", "fp32", *copy, "500.0", "measured", "14.6", "solid line, full symbols"],
        ["a CPU", "bf16", *copy, "20,000", "measured", "582.1", "dashed line, open symbols"],
    ]


def test_several_devices_are_named_and_fast_ones_drawn_in_teraflops() -> None:
    other = cell(LEDGER | CEILINGS, environment={"cpu": "another CPU"})
    notes = chart(rendered(cell(LEDGER | CEILINGS), other)).notes
    assert notes[:2] == ["copy 32.0 GiB/s", "a CPU"]
    assert notes.count("another CPU") == 2
    fast = {name: 1e3 * value if name.startswith("flops/") else value for name, value in LEDGER.items()}
    drawn = chart(rendered(cell(fast | CEILINGS), given={"matmul_flop_per_s": 1e15}))
    assert drawn.titles == ["FLOP per byte", "TFLOP/s"]
    assert drawn.marks[0].y == pytest.approx(1e3 * 2**30 / 0.004 / 1e12, rel=2e-4)


@pytest.mark.parametrize(
    ("given", "notes"),
    [
        ({"copy_bytes_per_s": 2.0**35}, ["copy 32.0 GiB/s"]),
        ({"matmul_flop_per_s": 5e11}, ["matmul 500.0 GFLOP/s"]),
    ],
)
def test_one_ceiling_alone_is_drawn(given: dict[str, float], notes: list[str]) -> None:
    html = rendered(cell(LEDGER), given=given)
    drawn = chart(html)
    assert drawn.notes == notes
    assert len(drawn.lines) == 1
    (row,) = Page(html).tables["ceilings"][1:]
    assert sorted(row[3:6:2]) == ["given", "not known"]


def test_without_ceilings_there_are_only_points_and_how_to_get_ceilings() -> None:
    html = rendered(cell(LEDGER))
    drawn = chart(html)
    assert (len(drawn.marks), drawn.lines, drawn.notes) == (1, [], [])
    assert "ceilings" not in Page(html).tables
    assert "dpprof roofline --copy-gib-per-s X --matmul-tflop-per-s Y" in text_of(html)
    assert "--passes clean,ledger,ceilings" in text_of(html)


def test_the_table_reads_without_a_script() -> None:
    page = Page(rendered(cell(LEDGER | CEILINGS)))
    assert page.heading == "s: roofline"
    assert page.addresses == [], "it needs nothing from elsewhere"
    assert page.tables["phases"][0][:3] == ["phase", "ms", "MiB"]
    assert page.tables["phases"][1] == ["StandardTrainer, tiny, batch 4, sequence 512"]
    assert [row[0] for row in page.tables["phases"][2:]] == ["forward", "noise", "step"]
    assert page.tables["phases"][3][7:9] == ["3.91", "12.2"]
    for lead in ("moves 96.0 MiB in 12.0 ms: 7.81 GiB/s, 24.4 % of what a copy", "89.5 GFLOP/s"):
        assert lead in " ".join(page.text.split())


def test_notes_tell_of_the_sources_that_are_there() -> None:
    ledger, both = text_of(rendered(cell(LEDGER))), text_of(rendered(cell(LEDGER | COUNTERS)))
    counted = text_of(rendered(cell(COUNTERS)))
    booked, dram = "bytes that operators request", "bytes that hardware counters saw"
    assert [booked in text for text in (ledger, both, counted)] == [True, True, False]
    assert [dram in text for text in (ledger, both, counted)] == [False, True, True]


def test_counters_without_a_ledger_have_a_table_and_no_chart() -> None:
    html = rendered(cell(COUNTERS | CEILINGS))
    assert 'id="roofline"' not in html
    assert "there is no chart to draw" in text_of(html)
    assert Page(html).tables["phases"][2][:5] == ["forward", "2.00", "16.0", "", ""]
    above = rendered(cell(LEDGER), given={"copy_bytes_per_s": 2.0**30})
    assert "Above the copy ceiling: forward (1,562 %)" in text_of(above)


def test_of_many_kernels_those_with_the_most_traffic_are_shown() -> None:
    rows = [example_counters.row(f"k{i}", "copy", "forward", 1, 1, i, 0) for i in range(25)]
    html = rendered(cell(COUNTERS), counted=CounterResult(rows))
    assert [row[0] for row in Page(html).tables["kernels"][1:]] == [f"k{i}" for i in range(24, 4, -1)]
    assert "(20 of 25)" in text_of(html)


BOTH_CEILINGS = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")


def run(at: Path, record: Record) -> RunFolder:
    return example_ledger.folder(at, record, example_ledger.timeline())


def sweep(at: Path, **changes: object) -> SweepFolder:
    run(at / "one", example_ledger.record())
    run(at / "other", dataclasses.replace(example_ledger.record(), **changes))  # type: ignore[arg-type]
    return SweepFolder(at)


@pytest.mark.parametrize(
    ("ledger", "ceilings", "counted", "drawn"),
    [
        (True, False, False, False),
        (False, True, False, False),
        (True, True, False, True),
        (True, False, True, True),
        (False, False, True, True),
    ],
)
def test_a_run_has_a_page_if_there_is_something_to_hold_against_something(
    tmp_path: Path, ledger: bool, ceilings: bool, counted: bool, drawn: bool
) -> None:
    booked: LedgerResult | None = example_ledger.ledger() if ledger else None
    record = example_ledger.record(
        ledger=booked,
        ceilings=BOTH_CEILINGS if ceilings else None,
        counters=example_counters.counters() if counted else None,
    )
    folder = run(tmp_path / "run", record)
    write_run_reports(read_result(folder))
    assert folder.roofline_page.exists() == drawn
    if drawn:
        page = Page(folder.roofline_page.read_text(encoding="utf-8"))
        assert page.heading == "run: roofline"
        assert ("kernels" in page.tables) == counted
        assert ("ceilings" in page.tables) == ceilings
        # Backward: 26 MiB and 8 GFLOP in 100 ms.
        if ledger and not counted:
            assert page.tables["phases"][3][:6] == ["backward", "100.0", "26.0", "8.00", "293.4", "80.0"]


def test_a_sweeps_page_stands_in_its_folder_and_among_what_was_written(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", ceilings=BOTH_CEILINGS)
    files = write_sweep_reports(folder, map(read_result, folder.runs())).files
    assert folder.roofline_page in files
    page = Page(folder.roofline_page.read_text(encoding="utf-8"))
    assert page.heading == "s: roofline"
    assert page.tables["phases"][1] == ["DPSGDTrainer, tiny, batch 2, sequence 16 (medians of 2 runs)"]
    assert "kernels" not in page.tables


def test_a_page_of_an_earlier_try_does_not_stay_and_nothing_makes_none(tmp_path: Path) -> None:
    assert run_roofline(read_result(example_ledger.folder(tmp_path / "run", None, None))) is None
    folder = sweep(tmp_path / "s")
    folder.roofline_page.write_text("stale")
    results = [read_result(found) for found in folder.runs()]
    assert write_sweep_roofline(folder, compare("s", {"s": results})) == []
    assert not folder.roofline_page.exists()

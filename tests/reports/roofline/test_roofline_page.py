import dataclasses
import re
from typing import Any

import example_counters
import example_ledger
import pytest
from example_roofline import CEILINGS, COUNTERS, LEDGER, cell, comparison
from page_reader import Page
from svg_reader import Chart, read_logarithmic

from dpprof.record.counters import CounterResult
from dpprof.reports import counter_tables
from dpprof.reports.colors import trainer_color
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.roofline.data import compute
from dpprof.reports.roofline.page import compute as page_of
from dpprof.reports.roofline.page import render
from dpprof.reports.roofline.roofs import Given

EVIL = "<script>alert('1')</script>&amp; größer %{x}"


def rendered(
    *cells: Cell, given: Given | None = None, counted: CounterResult | None = None, name: str = "s"
) -> str:
    tables = None if counted is None else counter_tables.compute(counted, example_ledger.ledger())
    found = compute(dataclasses.replace(comparison(*cells), name=name), given or Given())
    return render(page_of(found, tables))


def text_of(html: str) -> str:
    return " ".join(Page(html).text.split())


def chart(html: str) -> Chart:
    found = read_logarithmic(html, "roofline")
    assert found is not None
    return found


def test_the_chart_draws_phases_with_flops_under_their_roof() -> None:
    drawn = chart(rendered(cell(LEDGER | CEILINGS)))
    (forward,) = drawn.marks
    assert forward.title[0] == "forward"
    assert (forward.x, forward.y) == near(16.0, 2**30 / 0.004 / 1e9)
    (roof,) = drawn.lines
    ridge = 0.5e12 / 2**35
    assert roof[1] == near(ridge, 500)
    assert roof[2] == near(drawn.x_range[1], 500)
    assert roof[0] == near(drawn.x_range[0], drawn.x_range[0] * 2**35 / 1e9)
    assert drawn.notes == ["copy 32.0 GiB/s", "matmul 500.0 GFLOP/s"]
    assert drawn.titles == ["FLOP per byte", "GFLOP/s"]


def near(x: float, y: float) -> Any:
    """To a hundredth of a pixel."""
    return pytest.approx((x, y), rel=2e-4)


def test_everything_drawn_lies_within_the_axes() -> None:
    drawn = chart(rendered(cell(LEDGER | CEILINGS)))
    for mark in drawn.marks:
        assert drawn.x_range[0] < mark.x < drawn.x_range[1]
        assert drawn.y_range[0] < mark.y < drawn.y_range[1]
    assert drawn.x_range[1] > 0.5e12 / 2**35, "the flat part is in sight"


def test_hovering_names_everything() -> None:
    (forward,) = chart(rendered(cell(LEDGER | CEILINGS))).marks
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


def test_trainers_have_colours_and_phases_symbols() -> None:
    html = rendered(cell(LEDGER | CEILINGS), cell(LEDGER | CEILINGS, trainer="dpsgd"))
    marks = chart(html).marks
    assert [mark.title[1] for mark in marks] == ["StandardTrainer", "DPSGDTrainer"]
    assert [mark.color for mark in marks] == list(map(trainer_color, ("StandardTrainer", "DPSGDTrainer")))
    assert len({mark.path for mark in marks}) == 1
    (trainers,) = re.findall(r'<p class="legend" id="trainers">(.*?)</p>', html, re.S)
    assert text_of(trainers) == "trainer standard (StandardTrainer) flat (DPSGDTrainer)"
    (phases,) = re.findall(r'<p class="legend" id="phase-symbols">(.*?)</p>', html, re.S)
    assert text_of(phases) == "phase forward"
    assert marks[0].path in phases


def test_each_precision_has_a_roof_and_symbols_of_its_own() -> None:
    fast = CEILINGS | {"ceilings/matmul_tflop_per_s": 20.0}
    html = rendered(cell(LEDGER | CEILINGS), cell(LEDGER | fast, precision="bf16"))
    drawn = chart(html)
    assert len(set(drawn.dashes)) == 2
    assert [mark.is_open for mark in drawn.marks] == [False, True]
    assert drawn.notes == ["copy 32.0 GiB/s", "matmul fp32 500.0 GFLOP/s", "matmul bf16 20.0 TFLOP/s"]
    assert Page(html).tables["ceilings"][1:] == [
        [
            "a CPU",
            precision,
            "32.0",
            "the highest of 2 runs, the lowest 32.0",
            matmul,
            "measured",
            ridge,
            look,
        ]
        for precision, matmul, ridge, look in [
            ("fp32", "500.0", "14.6", "solid line, full symbols"),
            ("bf16", "20,000", "582.1", "dashed line, open symbols"),
        ]
    ]


def test_of_several_devices_each_is_named_at_its_ceilings() -> None:
    other = cell(LEDGER | CEILINGS, environment={"cpu": "another CPU"})
    notes = chart(rendered(cell(LEDGER | CEILINGS), other)).notes
    assert notes[:2] == ["copy 32.0 GiB/s", "a CPU"]
    assert notes.count("another CPU") == 2


def test_fast_devices_are_drawn_in_teraflops() -> None:
    fast = {name: 1e3 * value if name.startswith("flops/") else value for name, value in LEDGER.items()}
    drawn = chart(rendered(cell(fast | CEILINGS), given=Given(matmul_flop_per_s=1e15)))
    assert drawn.titles == ["FLOP per byte", "TFLOP/s"]
    assert drawn.marks[0].y == pytest.approx(1e3 * 2**30 / 0.004 / 1e12, rel=2e-4)


@pytest.mark.parametrize(
    ("given", "notes"),
    [
        (Given(copy_bytes_per_s=2.0**35), ["copy 32.0 GiB/s"]),
        (Given(matmul_flop_per_s=5e11), ["matmul 500.0 GFLOP/s"]),
    ],
)
def test_one_ceiling_alone_is_drawn(given: Given, notes: list[str]) -> None:
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
    assert page.tables["phases"][0][:3] == ["phase", "ms", "MiB"]
    assert page.tables["phases"][1] == ["StandardTrainer, tiny, batch 4, sequence 512"]
    assert [row[0] for row in page.tables["phases"][2:]] == ["forward", "noise", "step"]
    assert page.tables["phases"][3][7:9] == ["3.91", "12.2"]
    lead = "A step moves 96.0 MiB in 12.0 ms: 7.81 GiB/s, 24.4 % of what a copy reaches, and 89.5 GFLOP/s"
    assert lead in " ".join(page.text.split())


def test_notes_tell_of_the_sources_that_are_there() -> None:
    ledger, both = text_of(rendered(cell(LEDGER))), text_of(rendered(cell(LEDGER | COUNTERS)))
    counted = text_of(rendered(cell(COUNTERS)))
    booked, dram = "bytes are what operators request", "bytes are those that hardware counters saw"
    assert [booked in text for text in (ledger, both, counted)] == [True, True, False]
    assert [dram in text for text in (ledger, both, counted)] == [False, True, True]


def test_counters_without_a_ledger_have_a_table_and_no_chart() -> None:
    html = rendered(cell(COUNTERS | CEILINGS))
    assert 'id="roofline"' not in html
    assert "there is no chart to draw" in text_of(html)
    assert Page(html).tables["phases"][2][:5] == ["forward", "2.00", "16.0", "", ""]


def test_points_above_the_roof_are_told() -> None:
    assert "Warning. Above the copy ceiling: forward (1,562 %)" in text_of(
        rendered(cell(LEDGER), given=Given(copy_bytes_per_s=2.0**30))
    )
    assert "Warning" not in text_of(rendered(cell(LEDGER | CEILINGS)))


def test_the_counters_of_a_single_run_are_shown() -> None:
    page = Page(rendered(cell(LEDGER | COUNTERS), counted=example_counters.counters()))
    by_phase = page.tables["counters-by-phase"]
    assert by_phase[1] == [
        *("forward", "4", "2.00", "6.00", "2.00", "3.91", "40.0", "2.00", "1.00", "8.00", "4.00"),
        *("14.0", "0.57"),
    ]
    assert by_phase[-1][:4] == ["step", "12", "8.00", "18.0"]
    assert by_phase[-1][6:9] == ["", "", ""], "what was not counted everywhere has no total"
    assert [row[0] for row in page.tables["counters-by-class"][1:3]] == ["matrix product", "elementwise"]
    assert page.tables["kernels"][1][:4] == [example_counters.GEMM, "backward", "matrix product", "2"]
    assert page.tables["further"][1] == [example_counters.SM_PCT, "75.0", "", "", "", ""]
    text = " ".join(page.text.split())
    assert "sm__cycles_active.sum was not counted: this GPU has no such metric." in text
    assert "cache control: none" in text


def test_of_many_kernels_the_first_are_shown() -> None:
    rows = [example_counters.row(f"k{i}", "copy", "forward", 1, 1, i, 0) for i in range(25)]
    html = rendered(cell(COUNTERS), counted=CounterResult(rows))
    assert [row[0] for row in Page(html).tables["kernels"][1:]] == [f"k{i}" for i in range(24, 4, -1)]
    assert "20 of 25, each in one phase." in text_of(html)


def test_texts_from_outside_cannot_become_tags() -> None:
    def html(text: str) -> str:
        counted = example_counters.counters()
        counted.rows[0].name = counted.rows[0].kernel_class = counted.missing["m"] = text
        counted.settings["s"] = text
        counted.rows[0].values[text] = 1.0
        counted.rows[2].phase = text
        figures = {name.replace("forward", text.replace("/", "")): v for name, v in LEDGER.items()}
        made = cell(
            figures | CEILINGS,
            environment={"cpu": text},
            workload="SimpleBigModel",
        )
        other = dataclasses.replace(
            cell(LEDGER | CEILINGS, precision="bf16", environment={"cpu": text}), source=text
        )
        return rendered(made, other, counted=counted, name=text)

    evil, harmless = html(EVIL), html("harmless")
    page = Page(evil)
    assert page.tags == Page(harmless).tags
    assert page.heading == f"{EVIL}: roofline"
    assert page.tables["kernels"][1][0] == EVIL
    assert any(EVIL in line for mark in chart(evil).marks for line in mark.title)


def test_the_page_needs_nothing_from_elsewhere_and_is_small() -> None:
    html = rendered(*(cell(LEDGER | CEILINGS, batch_size=size) for size in range(1, 200)))
    page = Page(html)
    assert page.addresses == []
    assert "link" not in page.tags
    assert len(html.encode()) < 500_000

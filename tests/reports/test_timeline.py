from html.parser import HTMLParser
from json import JSONDecoder
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.config import ExperimentConfig
from dpprof.paths import RunFolder
from dpprof.record import Record
from dpprof.reports.timeline import PhaseSpan, Timeline, compute, render, write_timeline_page

MIB = 1_048_576
TWO_PHASES = {
    "seconds": [0.0, 0.1, 0.2, 0.3, 0.4],
    "allocated": [1 * MIB, 4 * MIB, 3 * MIB, 6 * MIB, 2 * MIB],
    "phases": [
        {"name": "forward", "start": 0.05, "end": 0.25},
        {"name": "backward", "start": 0.27, "end": 0.35},
    ],
}


def test_compute_names_the_peak_and_each_phases_own() -> None:
    found = compute(TWO_PHASES)
    assert found == Timeline(
        points=[(0, 1), (100, 4), (200, 3), (300, 6), (400, 2)],
        num_recorded=5,
        phases=[PhaseSpan("forward", 50, 250, 4), PhaseSpan("backward", 270, 350, 6)],
        peak_ms=300,
        peak_mib=6,
        peak_phase="backward",
    )


@pytest.mark.parametrize(
    ("start", "end", "peak_mib"),
    [
        (0.00, 0.05, 1),
        (0.12, 0.18, 4),  # nothing happens inside: the level of before holds
        (0.15, 0.25, 4),  # it starts at 4 MiB, which fall to 3 inside
        (0.35, 0.40, 6),
        (0.40, 0.50, 6),
        (0.45, 0.50, 2),
    ],
)
def test_the_level_that_a_phase_starts_with_counts_for_its_peak(
    start: float, end: float, peak_mib: float
) -> None:
    found = compute(TWO_PHASES | {"phases": [{"name": "clip", "start": start, "end": end}]})
    assert found.phases[0].peak_mib == peak_mib


def test_a_peak_between_phases_has_no_phase() -> None:
    phases = [{"name": "forward", "start": 0.0, "end": 0.25}, {"name": "clip", "start": 0.35, "end": 0.4}]
    assert compute(TWO_PHASES | {"phases": phases}).peak_phase is None


def staircase(levels: list[int]) -> dict[str, Any]:
    return {
        "seconds": [float(i) for i in range(len(levels))],
        "allocated": [MIB * level for level in levels],
        "phases": [],
    }


def test_up_to_4000_points_are_kept_as_they_are() -> None:
    assert len(compute(staircase([1] * 4_000)).points) == 4_000
    assert len(compute(staircase([1] * 4_001)).points) < 4_001


# A few levels over and over, so that hypothesis can reach beyond 4000 points.
@settings(deadline=None)
@given(st.lists(st.integers(0, 99), min_size=2, max_size=50), st.integers(4_001, 9_000))
def test_thinning_keeps_the_peak_both_ends_and_only_recorded_points(cycle: list[int], length: int) -> None:
    levels = [cycle[i % len(cycle)] for i in range(length)]
    found = compute(staircase(levels))
    recorded = [(1e3 * i, float(level)) for i, level in enumerate(levels)]
    assert found.num_recorded == len(recorded)
    assert len(found.points) <= 4_002
    assert found.points == sorted(set(found.points) & set(recorded))
    assert (found.points[0], found.points[-1]) == (recorded[0], recorded[-1])
    assert max(mib for _, mib in found.points) == found.peak_mib == max(levels)
    assert min(mib for _, mib in found.points) == min(levels)


def test_thinning_keeps_a_lone_spike_and_a_lone_dip() -> None:
    levels = [5] * 50_000
    levels[31_337], levels[40_001] = 1_000, 0
    found = compute(staircase(levels))
    assert {(31_337_000.0, 1_000.0), (40_001_000.0, 0.0)} <= set(found.points)
    assert (found.peak_ms, found.peak_mib) == (31_337_000, 1_000)


class Page(HTMLParser):
    """What a browser would see: tags, the addresses they name, table rows as texts, and headings."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.rows: list[list[str]] = []
        self.heading = ""
        self._inside: str | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag in ("td", "th", "h1"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "h1":
            self.heading += data
        elif self._inside is not None:
            self.rows[-1][-1] += data


def test_the_page_shows_the_figures_as_tables_and_needs_nothing_from_elsewhere() -> None:
    page = Page(render(compute(TWO_PHASES), "my run", {"trainer": "DPSGDTrainer"}))
    assert page.heading == "my run"
    assert page.rows == [
        ["phase", "start [ms]", "duration [ms]", "peak [MiB]"],
        ["forward", "50.00", "200.00", "4.00"],
        ["backward", "270.00", "80.00", "6.00"],
        ["trainer", "DPSGDTrainer"],
    ]
    assert page.addresses == []
    assert "link" not in page.tags


def chart(html: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The curves and the layout that the page gives to `Plotly.newPlot(id, curves, layout, ...)`."""
    call = html[html.rindex("Plotly.newPlot(") :]
    curves, end = JSONDecoder().raw_decode(call, call.index("["))
    layout, _ = JSONDecoder().raw_decode(call, call.index("{", end))
    return curves, layout


def test_the_chart_draws_the_points_the_phases_and_the_peak() -> None:
    (curve,), layout = chart(render(compute(TWO_PHASES), "my run", {}))
    assert (curve["x"], curve["y"]) == ([0, 100, 200, 300, 400], [1, 4, 3, 6, 2])
    assert curve["line"]["shape"] == "hv"  # a level holds until the next event
    assert [(shape["name"], shape["x0"], shape["x1"]) for shape in layout["shapes"]] == [
        ("forward", 50, 250),
        ("backward", 270, 350),
    ]
    (peak,) = layout["annotations"]
    assert (peak["x"], peak["y"], peak["text"]) == (300, 6, "peak 6.0 MiB in backward")
    lowest, highest = layout["yaxis"]["range"]
    assert lowest == 0
    assert highest > 6


def test_a_phase_that_comes_twice_is_once_in_the_legend() -> None:
    names = ["clip", "noise", "clip"]
    phases = [{"name": name, "start": 0.1 * i, "end": 0.1 * i + 0.05} for i, name in enumerate(names)]
    _, layout = chart(render(compute(TWO_PHASES | {"phases": phases}), "my run", {}))
    assert [(shape["name"], shape["showlegend"]) for shape in layout["shapes"]] == [
        ("clip", True),
        ("noise", True),
        ("clip", False),
    ]


def test_texts_from_outside_cannot_become_tags() -> None:
    evil = "<script>alert('1')</script>&amp;"
    data = TWO_PHASES | {"phases": [{"name": evil, "start": 0.1, "end": 0.3}]}
    harmless = Page(render(compute(TWO_PHASES | {"phases": []}), "run", {}))
    page = Page(render(compute(data), evil, {"model": evil}))
    assert page.heading == evil
    assert page.rows[1:] == [[evil, "100.00", "200.00", "6.00"], ["model", evil]]
    assert page.tags.count("script") == harmless.tags.count("script")


def test_the_page_of_a_run_folder(tmp_path: Path) -> None:
    config = ExperimentConfig(batch_size=2, seq_len=16).resolve(cuda_available=False)
    folder = RunFolder(tmp_path / config.run_name)
    folder.create(config)
    folder.write_timeline(TWO_PHASES)
    write_timeline_page(folder)
    assert not folder.timeline_page.exists()  # no record, so nothing to head the page with

    environment = {"cpu": "A & B", "torch_version": "2.13", "opacus_version": "1.6"}
    folder.write_record(Record(vars(config), environment, num_parameters=1_234_567))
    write_timeline_page(folder)
    page = Page(folder.timeline_page.read_text(encoding="utf-8"))
    assert page.heading == "StandardTrainer_tiny_bs2_seq16"
    assert dict(page.rows[3:]) == {
        "trainer": "StandardTrainer",
        "model": "tiny, 1,234,567 parameters",
        "batch x sequence": "2 x 16",
        "precision": "fp32",
        "device": "A & B",
        "torch / Opacus": "2.13 / 1.6",
    }

"""The memory timelines of a comparison's runs, thinned for its page."""

import dataclasses
from pathlib import Path

import example_ledger
import pytest
from example_estimates import estimate
from example_results import comparison

from dpprof.findings.comparison.comparison import compare
from dpprof.findings.comparison.data import read_timelines
from dpprof.pages.html import packed
from dpprof.record.figures.results import read_result
from dpprof.record.ledger import PhaseMark

COUNT = 16


def test_each_run_has_its_levels_its_phases_and_its_peak(tmp_path: Path) -> None:
    folders, results = {}, []
    for trainer in ("StandardTrainer", "DPSGDTrainer"):
        config = dataclasses.replace(example_ledger.CONFIG, trainer=trainer)
        folder = example_ledger.folder(tmp_path / trainer, example_ledger.record(), example_ledger.timeline())
        results.append(dataclasses.replace(read_result(folder), config=config))
        folders["s", trainer] = folder
    found, damaged = read_timelines(compare("s", {"s": results}), folders)
    assert damaged == []
    assert list(found) == ["standard: tiny, batch 2, sequence 16", "flat: tiny, batch 2, sequence 16"]
    curves = found["flat: tiny, batch 2, sequence 16"]
    assert curves["trainer"] == "flat"
    assert curves["words"][:2] == ["parameters", "activations"], "stacked in the page's order"
    total = [sum(column) for column in zip(*curves["mib"].values(), strict=True)]
    assert total[:8] == [4, 12, 16, 12, 28, 30, 22, 20]
    assert total[curves["peak"]] == 30
    assert curves["phases"] == [("forward", 0, 50), ("backward", 50, 150)]


def test_a_phase_of_an_estimate_is_as_wide_as_predicted(tmp_path: Path) -> None:
    made = estimate()  # one phase, backward, of 2 ms by prediction
    folder = example_ledger.folder(tmp_path / "run", example_ledger.record(), example_ledger.timeline())
    found, _ = read_timelines(comparison(made), {("s", made.name): folder})
    (curves,) = found.values()
    widths = {name: round(end - start, 3) for name, start, end in curves["phases"]}
    assert widths["backward"] == 2
    made = estimate(target="none")
    found, _ = read_timelines(comparison(made), {("s", made.name): folder})
    (curves,) = found.values()
    assert {name: round(end - start) for name, start, end in curves["phases"]}["backward"] == 180


def test_sixteen_long_steps_are_small_in_the_page(tmp_path: Path) -> None:
    """Each of 4,000 events that go up and down, in four categories."""
    events = 4_000
    sizes = [example_ledger.MIB * (1 + 977 * i % 50) + 512 * i for i in range(events // 2)]
    timeline = example_ledger.timeline(
        start={},
        seconds=[i / events for i in range(events)],
        category=[list(example_ledger.AT_PEAK)[i // 2 % 4] for i in range(events)],
        num_bytes=[change for size in sizes for change in (size, -size)],
        moved_to=[None] * events,
        phases=[PhaseMark("forward", 0.0, 1.0, 0, events)],
        step_s=1.0,
        peak_event=2 * max(range(len(sizes)), key=lambda i: sizes[i]),
        storage_index=[0] * events,
    )
    folder = example_ledger.folder(tmp_path / "run", example_ledger.record(), timeline)
    result = read_result(folder)
    found, _ = read_timelines(compare("s", {"s": [result]}), {("s", result.name): folder})
    (curves,) = found.values()
    total = [sum(column) for column in zip(*curves["mib"].values(), strict=True)]
    assert total[curves["peak"]] == max(total) == pytest.approx(max(sizes) / example_ledger.MIB, rel=1e-5)
    assert COUNT * len(packed(curves)) < 250_000

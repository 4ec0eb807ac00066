import dataclasses
from collections.abc import Sequence

import pytest
from example_findings import BUSY, run
from example_results import comparison, result

from dpprof.errors import ConfigError
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.regression import Check, FigureChange, check
from dpprof.record.record import Failure, FailureKind

NOISE = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005, 1.0, 0.992, 1.008)


def side(
    step_s: float = 0.1, peak_mib: float | None = 100, *, runs: int = 3, noise: Sequence[float] = NOISE
) -> Comparison:
    """One cell, of which each run is a little off. A peak of None is not measured."""
    return comparison(
        *(
            result(step_s=[step_s * n * (1 + 0.008 * i) for n in noise], peak_mib=peak_mib, name=f"run{i}")
            for i in range(runs)
        )
    )


def change(checked: Check, what: str) -> FigureChange:
    (found,) = [c for c in checked.changes if c.what == what]
    return found


BLIND = side(peak_mib=None)


@pytest.mark.parametrize(
    ("now", "before", "limit", "is_worse", "note"),
    [
        (side(peak_mib=104.9), side(), 5, False, ""),
        (side(peak_mib=105.1), side(), 5, True, ""),
        (side(peak_mib=50), side(), 5, False, ""),
        (side(peak_mib=100.001), side(), 0, True, ""),
        (side(), side(), 0, False, ""),
        (BLIND, side(), 5, False, "not judged: not measured now (passes=clean,memory)"),
        (side(), BLIND, 5, False, "not judged: not measured in the baseline (passes=clean,memory)"),
    ],
)
def test_memory_is_compared_exactly_where_both_sides_have_it(
    now: Comparison, before: Comparison, limit: float, is_worse: bool, note: str
) -> None:
    checked = check(now, before, limit)
    found = change(checked, "peak memory")
    assert (found.is_worse, found.interval, found.note) == (is_worse, None, note)
    assert checked.worse == ([found] if is_worse else [])
    if found.now and found.before:
        assert found.percent == pytest.approx(found.now - 100)


def test_weights_of_another_type_than_the_baselines_are_told() -> None:
    short, wide = (comparison(result(step_s=0.1, peak_mib=9, weights={w: 1})) for w in ("bf16", "fp32"))
    assert check(short, wide, 5).doubts == ["type of weights: fp32 in the baseline, bf16 now"]
    assert check(short, side(peak_mib=9), 5).doubts == [], "not known of an earlier version's runs"


@pytest.mark.parametrize(("step_s", "is_worse"), [(0.1, False), (0.110, True), (0.106, False), (0.09, False)])
def test_a_step_time_is_worse_only_beyond_its_spread(step_s: float, is_worse: bool) -> None:
    """6 % more is above the limit of 5 %, but the spread of the runs (0.8 %) reaches below it."""
    found = change(check(side(step_s), side(), 5), "step time")
    assert found.is_worse == is_worse
    assert found.percent == pytest.approx(1e3 * step_s - 100)
    assert found.interval is not None
    assert found.percent is not None
    assert found.interval[0] < found.percent < found.interval[1]
    assert found.note.startswith("no pace pass on both sides")


@pytest.mark.parametrize(
    ("now", "before", "note"),
    [
        (side(0.2, runs=1), side(), "not judged: one run"),
        (side(0.2), side(runs=1), "not judged: one run"),
        (side(0.2, runs=1, noise=[1.0]), side(runs=1, noise=[1.0]), "not judged: too few timed steps"),
    ],
)
def test_one_run_or_step_is_not_judged_by_its_time(now: Comparison, before: Comparison, note: str) -> None:
    found = change(check(now, before, 5), "step time")
    assert not found.is_worse
    assert found.percent == pytest.approx(100, abs=2)
    assert note in found.note


def test_what_no_longer_finishes_is_worse_even_one_repetition() -> None:
    failed = comparison(result(failure=Failure(FailureKind.OOM, "no memory\nmore")))
    (found,) = check(failed, side(), 5).changes
    assert (found.what, found.is_worse, found.note) == ("status", True, "oom: no memory")
    (back,) = check(side(), failed, 5).changes
    assert (back.is_worse, back.note) == (False, "was oom in the baseline")
    runs = [result(step_s=[0.1] * 9, peak_mib=100, name=str(i)) for i in range(2)]
    broken = comparison(*runs, result(failure=Failure(FailureKind.KILLED, ""), name="2"))
    checked = check(broken, side(), 5)
    assert [c.what for c in checked.worse] == ["status"]
    assert len(checked.changes) == 3
    (cell,) = side(peak_mib=None).cells
    silent = dataclasses.replace(cell.runs[0], failed_passes={"memory": "the allocator is silent"})
    later = Comparison("now", [Cell("now", cell.settings, [silent, *cell.runs[1:]])])
    (worse,) = check(later, side(), 5).worse
    assert (worse.what, worse.note) == ("status", "later pass: memory pass: the allocator is silent")


def test_cells_match_whatever_was_measured_of_them() -> None:
    now = comparison(result(step_s=0.1, peak_mib=1, passes="clean,memory", measured_steps=3, name="a"))
    before = comparison(result(step_s=0.1, peak_mib=1, name="b"))
    checked = check(now, before, 5)
    assert (len(checked.changes), checked.unmatched, checked.doubts) == (2, [], [])


def test_cells_of_one_side_are_told_and_not_compared() -> None:
    now = comparison(result(step_s=0.1), result(step_s=0.1, lr=0.5, name="new"))
    before = comparison(result(step_s=0.1), result("DPSGDTrainer", step_s=0.1, name="old"))
    assert check(now, before, 5).unmatched == ["new: not in the baseline", "old: in the baseline only"]
    with pytest.raises(ConfigError, match="no experiment with equal settings"):
        check(comparison(result(step_s=0.1, lr=0.5)), before, 5)


def test_another_machine_is_said() -> None:
    machine = {"cpu": "A", "torch_version": "2.13", "python": "3.11", "dpprof_version": "1"}
    before = comparison(result(step_s=0.1, environment=machine))
    other = machine | {"cpu": "B", "python": "3.12", "dpprof_version": "2"}
    now = comparison(result(step_s=0.1, environment=other))
    assert check(now, before, 5).doubts == ["cpu: A in the baseline, B now"]


def paced(pace: float, step_s: float) -> Comparison:
    """Three runs on a machine that is at another pace in each, with steps worth `pace` fixed computations."""
    found = side(step_s)
    (cell,) = found.cells
    for i, (one, slowness) in enumerate(zip(cell.runs, (1, 1.4, 1.7), strict=True)):
        cell.runs[i] = dataclasses.replace(
            one, pace=[pace * (1 + 0.002 * i)] * 9, step_s=[s * slowness for s in one.step_s]
        )
    return found


@pytest.mark.parametrize(("pace", "is_worse"), [(4.4, True), (4.0, False), (3.6, False)])
def test_the_pace_of_the_machine_is_left_out(pace: float, is_worse: bool) -> None:
    found = change(check(paced(pace, 0.11), paced(4.0, 0.1), 5), "step time")
    assert (found.is_worse, found.note) == (is_worse, "")
    assert found.percent == pytest.approx(100 * (pace / 4.0 - 1))
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] < 2
    by_clock = change(check(paced(pace, 0.1), side(), 5), "step time")
    assert by_clock.note.startswith("no pace pass on both sides")


def test_disturbed_runs_are_not_judged_by_the_clock() -> None:
    """Nine times as long beside a busy process; the pace pass, made for that, is judged as ever."""
    runs = [run("StandardTrainer", [0.9] * 9, 100, name=str(i), **BUSY) for i in range(3)]
    disturbed = comparison(*runs)
    found = change(check(disturbed, side(), 5), "step time")
    assert (found.is_worse, found.interval) == (False, None)
    assert found.note.startswith("not judged: the machine was disturbed")
    (cell,) = disturbed.cells
    measured = [dataclasses.replace(one, pace=[4.4 + 0.01 * i] * 9) for i, one in enumerate(cell.runs)]
    paced_now = Comparison("now", [Cell("now", cell.settings, measured)])
    assert change(check(paced_now, paced(4.0, 0.1), 5), "step time").is_worse

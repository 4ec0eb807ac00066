"""The rows of a comparison: bars, words for the best and the worst."""

from typing import Any

import pytest
from example_findings import FAST, FLAT, GHOST, STANDARD, run
from example_results import comparison, result

from dpprof.findings.comparison.rows import MEASURES, UNITEMISED, CellBar, bar, legend, marks
from dpprof.record.figures.names import PEAK, STEP
from dpprof.record.figures.results import Result
from dpprof.record.record import Failure, FailureKind
from dpprof.vocabulary.trainer_info import UNLISTED_COLOR

MEMORY, TIME, _ = MEASURES


def bars(**figures: Any) -> list[CellBar]:
    """The bars of a run's memory, time and bytes moved."""
    found = comparison(result("DPSGDTrainer", **figures))
    return [bar(found, found.cells[0], measure) for measure in MEASURES]


def test_the_parts_of_a_bar_add_up_to_its_figure() -> None:
    memory, time, moved = bars(
        step_s=0.1,
        peak_mib=13,
        at_peak={"per_sample_gradients": 6, "parameters": 4, "noise": 2},
        phase_ms={"backward": 60, "forward": 30},
        moved=[("forward", "copy", 3), ("backward", "copy", 5)],
    )
    assert memory.parts == {"parameters": 4, "per_sample_gradients": 6, "noise": 2, "untracked": 1}
    assert list(memory.parts) == ["parameters", "per_sample_gradients", "noise", "untracked"], "in order"
    assert memory.total == 13
    assert time.parts == pytest.approx({"forward": 30, "backward": 60, "between phases": 10})
    assert (moved.parts, moved.total) == ({"forward": 3, "backward": 5}, 8)
    for one in (memory, time, moved):
        assert one.total == pytest.approx(sum(one.parts.values()))
        assert one.ratio is None


def test_parts_that_no_table_lists_are_drawn_last_in_grey() -> None:
    memory, time, moved = bars(
        step_s=0.1,
        peak_mib=10,
        at_peak={"flat_gradients": 6, "parameters": 4},
        phase_ms={"per_sample_backward": 50, "forward": 30},
        moved=[("per_sample_backward", "copy", 3), ("forward", "copy", 5)],
    )
    assert list(memory.parts.items()) == [("parameters", 4), ("flat_gradients", 6)]
    assert list(time.parts) == ["forward", "between phases", "per_sample_backward"]
    assert time.total == pytest.approx(sum(time.parts.values()))
    assert list(moved.parts.items()) == [("forward", 5), ("per_sample_backward", 3)]
    assert legend([time], TIME) == list(time.parts)
    assert TIME.color("per_sample_backward") == MEMORY.color("flat_gradients") == UNLISTED_COLOR


def test_parts_that_do_not_add_up_leave_nothing_between_and_none_is_one_part() -> None:
    memory, time, moved = bars(step_s=0.1, peak_mib=5, phase_ms={"forward": 50, "backward": 55})
    assert time.parts == pytest.approx({"forward": 50, "backward": 55})
    assert memory.parts == {UNITEMISED: 5}
    assert (moved.parts, moved.total, moved.failure) == ({}, None, None)


def test_a_cell_that_did_not_finish_has_no_bar() -> None:
    memory, *_ = bars(step_s=0.1, peak_mib=10, failure=Failure(FailureKind.INTERRUPTED, "stopped"))
    assert (memory.total, memory.failure) == (None, "interrupted")


def words(metric: str, *results: Result) -> list[str]:
    (place,) = comparison(*results).places
    return marks(place, metric)


def test_the_best_and_the_worst_dp_trainer_have_a_word_and_standard_training_none() -> None:
    four = (run(STANDARD, 0.1, 9.0), run(FLAT, 0.2, 4.0), run(GHOST, 0.4, 1.0), run(FAST, 0.3, 2.0))
    assert words(STEP, *four) == ["", "fastest", "slowest", ""]
    assert words(PEAK, *four) == ["", "most", "least", ""]


def test_what_cannot_be_told_apart_has_none() -> None:
    close = (run(FLAT, 0.2, 4.0), run(GHOST, 0.2005, 4.0), run(FAST, 0.1, 4.001))
    assert words(STEP, *close) == ["", "", "fastest"]
    assert words(PEAK, *close) == ["", "", ""]
    short = (run(FLAT, [0.2, 0.2], 4.0), run(GHOST, [0.4, 0.4], 8.0))
    assert words(STEP, *short) == ["", ""], "too few steps"
    assert words(PEAK, *short) == ["least", "most"]

"""The parts that bars stack."""

from typing import Any

import pytest
from example_results import comparison, result

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.parts import DRAWN, UNITEMISED, color_of, legend, length, parts
from dpprof.record.figures.names import MOVED, PEAK, STEP
from dpprof.record.record import Failure, FailureKind
from dpprof.vocabulary.trainer_info import UNLISTED_COLOR


def cell(**figures: Any) -> Cell:
    (found,) = comparison(result("DPSGDTrainer", **figures)).cells
    return found


def test_the_parts_of_a_bar_add_up_to_its_figure() -> None:
    found = cell(
        step_s=0.1,
        peak_mib=13,
        at_peak={"per_sample_gradients": 6, "parameters": 4, "noise": 2},
        phase_ms={"backward": 60, "forward": 30},
        moved=[("forward", "copy", 3), ("backward", "copy", 5)],
    )
    in_order = [("parameters", 4), ("per_sample_gradients", 6), ("noise", 2), ("untracked", 1)]
    assert list(parts(found, PEAK).items()) == in_order
    assert parts(found, STEP) == pytest.approx({"forward": 30, "backward": 60, "between phases": 10})
    assert parts(found, MOVED) == {"forward": 3, "backward": 5}
    for metric in DRAWN:
        assert found.figures[metric] == pytest.approx(sum(parts(found, metric).values()))
        assert length(found, metric) == pytest.approx(found.figures[metric])


def test_parts_that_no_table_lists_are_drawn_last_in_grey() -> None:
    found = cell(
        step_s=0.1,
        peak_mib=10,
        at_peak={"flat_gradients": 6, "parameters": 4},
        phase_ms={"per_sample_backward": 50, "forward": 30},
        moved=[("per_sample_backward", "copy", 3), ("forward", "copy", 5)],
    )
    assert list(parts(found, PEAK).items()) == [("parameters", 4), ("flat_gradients", 6)]
    assert list(parts(found, STEP)) == ["forward", "between phases", "per_sample_backward"]
    assert list(parts(found, MOVED).items()) == [("forward", 5), ("per_sample_backward", 3)]
    assert list(legend([found], STEP)) == list(parts(found, STEP))
    assert color_of(STEP, "per_sample_backward") == color_of(PEAK, "flat_gradients") == UNLISTED_COLOR


def test_parts_that_do_not_add_up_leave_nothing_between_and_none_is_one_part() -> None:
    found = cell(step_s=0.1, peak_mib=5, phase_ms={"forward": 50, "backward": 55})
    assert parts(found, STEP) == pytest.approx({"forward": 50, "backward": 55})
    assert length(found, STEP) == pytest.approx(105)
    assert parts(found, PEAK) == {UNITEMISED: 5}
    assert legend([found], PEAK) == {}
    assert (parts(found, MOVED), length(found, MOVED)) == ({}, 0)


def test_a_cell_that_did_not_finish_has_no_bar() -> None:
    found = cell(step_s=0.1, peak_mib=10, failure=Failure(FailureKind.INTERRUPTED, "stopped"))
    assert [parts(found, metric) for metric in DRAWN] == [{}] * len(DRAWN)

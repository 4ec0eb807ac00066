"""Where the extra bytes and milliseconds of a DP trainer go."""

import pytest
from example_findings import BUSY, FLAT, GHOST, HERE, STANDARD, findings, found, run, steps
from example_results import comparison, result

from dpprof.reports.comparison.findings.extra import DisturbedTime, Extra, ExtraTime, Peak
from dpprof.reports.comparison.findings.parts import Parts, all_parts, fold_backward, parts_of


def test_the_extra_bytes_and_milliseconds_come_by_part() -> None:
    standard = result(
        step_s=steps(0.1, 0.001),
        peak_mib=20,
        at_peak={"parameters": 4, "activations": 16},
        phase_ms={"forward": 30, "backward": 60},
        moved=[("forward", "copy", 3), ("backward", "matrix_product", 5)],
    )
    private = result(
        GHOST,
        step_s=steps(0.25, 0.001),
        peak_mib=50,
        at_peak={"parameters": 4, "activations": 6, "per_sample_gradients": 40},
        phase_ms={"forward": 30, "backward_norms": 120, "backward_weighted": 60, "noise": 31},
        moved=[("forward", "copy", 3), ("backward_norms", "matrix_product", 9), ("noise", "noise", 8)],
    )
    (finding,) = findings(comparison(standard, private), Extra)
    extra = finding.data
    assert (extra.trainer, extra.place) == (GHOST, HERE)
    assert extra.memory is not None
    assert (extra.memory.peak, extra.memory.standard) == (Peak(50, "backward"), Peak(20, "backward"))
    assert extra.memory.parts == Parts(30, {"per_sample_gradients": 40, "activations": -10}, None)
    assert isinstance(extra.time, ExtraTime)
    assert extra.time.ratio.value == pytest.approx(2.5)
    assert extra.time.parts is not None
    assert extra.time.parts.named == pytest.approx({"backward": 120, "noise": 31})
    assert extra.traffic is not None
    assert extra.traffic.moved_mib == 20
    assert extra.traffic.by_phase == Parts(12, {"noise": 8, "backward": 4}, None)
    assert extra.traffic.by_class == Parts(12, {"noise": 8, "matrix_product": 4}, None)
    assert [point.partition(":")[0] for point in finding.points] == ["Memory", "Time", "Traffic"]
    assert finding.points[0].endswith("+30.0 MiB, by per-sample gradients +40.0, activations -10.0.")
    assert finding.points[1].endswith(": +150.0 ms, by backward +120.0, noise +31.0.")


def test_small_times_and_sizes_are_told_with_their_digits() -> None:
    cells = [
        run(STANDARD, 0.00001, 0.001, at_peak={"parameters": 0.001}),
        run(FLAT, 0.00004, 0.003, at_peak={"parameters": 0.001, "noise": 0.002}),
    ]
    (finding,) = findings(comparison(*cells), Extra)
    assert "a peak of 3.1 KiB in backward against 1.0 KiB in backward: +0.002 MiB" in finding.points[0]
    assert "+0.03 ms" in finding.points[1]


def test_a_difference_within_the_spread_has_no_parts() -> None:
    (extra,) = found(comparison(run(STANDARD, steps(0.2, 0.1), 9), run(FLAT, steps(0.202, 0.1), 9)), Extra)
    assert isinstance(extra.time, ExtraTime)
    assert extra.time.parts is None
    assert extra.memory is not None
    assert extra.memory.parts is None


def test_a_single_step_tells_nothing_of_time() -> None:
    (extra,) = found(comparison(run(STANDARD, [0.1], 9), run(FLAT, [0.1], 20)), Extra)
    assert extra.time is None


def test_where_runs_were_disturbed_the_ratio_of_times_has_no_interval() -> None:
    of = comparison(run(STANDARD, 0.1, 10, **BUSY), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    times = {extra.trainer: extra.time for extra in found(of, Extra)}
    ratios = {trainer: time.ratio for trainer, time in times.items() if isinstance(time, DisturbedTime)}
    assert ratios == pytest.approx({FLAT: 2, GHOST: 1.5})
    assert "but runs were disturbed" in str(times[FLAT])


def test_parts_of_a_difference_add_up_to_it() -> None:
    more, less = {"a": 5.0, "b": 2.0}, {"a": 1.0, "c": 9.0}
    parts = all_parts(more, less)
    assert parts == [("c", -9), ("a", 4), ("b", 2)]
    assert sum(value for _, value in parts) == sum(more.values()) - sum(less.values())


def test_what_the_largest_parts_leave_of_a_difference_is_kept() -> None:
    more = {"parameters": 10.0, "noise": 5.0, "activations": 4.0, "gradients": 3.0, "temporary": 2.0}
    parts = parts_of(more, {"parameters": 10.0}, 15.0)
    assert parts == Parts(15, {"noise": 5, "activations": 4, "gradients": 3}, 3)
    assert str(parts) == "noise +5.0, activations +4.0, gradients +3.0, the rest +3.0"


def test_parts_too_small_for_a_word_are_many_small_parts() -> None:
    parts = parts_of({f"p{i}": 1.0 for i in range(100)}, {}, 100.0)
    assert (parts.named, parts.rest, str(parts)) == ({}, None, "many small parts")


def test_two_backward_passes_are_one() -> None:
    folded = fold_backward({"backward_norms": 1, "clip": 5, "backward_weighted": 2})
    assert folded == {"backward": 3, "clip": 5}

"""Where extra bytes and milliseconds go, and what a lean loop would save."""

import dataclasses

import pytest
from example_findings import BUSY, FLAT, GHOST, HERE, STANDARD, run, steps, told
from example_results import MIB, comparison, result

from dpprof.findings.verdict.extra import fold_backward, parts_of, saving
from dpprof.record.figures.results import Result

ZEROED = "call `zero_grad(set_to_none=True)`"


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
    against, memory, time, traffic = told(comparison(standard, private), "ghost").splitlines()
    assert against == f"Against standard at {HERE}:"
    assert memory.startswith("Memory: a peak of 50.0 MiB in backward against 20.0 MiB in backward:")
    assert memory.endswith("+30.0 MiB, by per-sample gradients +40.0, activations -10.0.")
    assert time.startswith("Time: 2.50 x the step (95 % interval 2.")
    assert time.endswith(": +150.0 ms, by backward +120.0, noise +31.0.")
    assert "20.0 MiB moved in a step, +12.0 MiB: by phase noise +8.0, backward +4.0;" in traffic
    assert traffic.endswith("by operator class noise +8.0, matrix product +4.0.")


def test_small_times_and_sizes_are_told_with_their_digits() -> None:
    cells = [
        run(STANDARD, 0.00001, 0.001, at_peak={"parameters": 0.001}),
        run(FLAT, 0.00004, 0.003, at_peak={"parameters": 0.001, "noise": 0.002}),
    ]
    said = told(comparison(*cells), "flat")
    assert "a peak of 3.1 KiB in backward against 1.0 KiB in backward: +0.002 MiB" in said
    assert "+0.03 ms" in said


def test_a_difference_within_the_spread_has_no_parts_and_a_single_step_no_time() -> None:
    said = told(comparison(run(STANDARD, steps(0.2, 0.1), 9), run(FLAT, steps(0.202, 0.1), 9)), "flat")
    assert "no clear difference" in said
    assert ", by " not in said
    assert "Time" not in told(comparison(run(STANDARD, [0.1], 9), run(FLAT, [0.1], 20)), "flat")


@pytest.mark.parametrize(("trainer", "ratio"), [("flat", "2.00"), ("ghost", "1.50")])
def test_where_runs_were_disturbed_the_ratio_of_times_has_no_interval(trainer: str, ratio: str) -> None:
    of = comparison(run(STANDARD, 0.1, 10, **BUSY), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    assert f"Time: {ratio} x the step, but runs were disturbed" in told(of, trainer)
    assert "interval" not in told(of, trainer)


def test_the_largest_parts_are_named_and_what_they_leave_is_kept() -> None:
    more = {"parameters": 10.0, "noise": 5.0, "activations": 4.0, "gradients": 3.0, "temporary": 2.0}
    parts = parts_of(more, {"parameters": 10.0}, 15.0)
    assert parts == "noise +5.0, activations +4.0, gradients +3.0, the rest +3.0"
    assert parts_of({"a": 5.0, "b": 2.0}, {"a": 1.0, "c": 9.0}, -3.0) == "c -9.0, a +4.0, b +2.0"
    assert parts_of({f"p{i}": 1.0 for i in range(100)}, {}, 100.0) == "many small parts"
    assert fold_backward({"backward_norms": 1, "clip": 5, "backward_weighted": 2}) == {
        "backward": 3,
        "clip": 5,
    }


def with_savings(trainer: str, **saved: float) -> Result:
    made = result(trainer, step_s=0.1, peak_mib=100.0)
    assert made.record is not None
    made.record.memory.saved = {name: round(mib * MIB) for name, mib in saved.items()}
    return made


def saved(**mib: float) -> str:
    (cell,) = comparison(with_savings(FLAT, **mib)).cells
    return saving(cell)


def test_each_saving_has_its_bytes() -> None:
    standard = with_savings(STANDARD, outputs=15.5)
    flat = with_savings(FLAT, outputs=15.5, gradients=12.0, all=20.25)
    _, first, second = told(comparison(standard, flat), "Savings").splitlines()
    assert first.startswith(f"standard at {HERE}: ")
    assert first.endswith(": -15.5 MiB.")
    assert second.startswith(f"flat at {HERE}: {ZEROED}: -12.0 MiB; ")
    assert second.endswith("; both: -20.2 MiB.")


def test_a_saving_of_next_to_nothing_is_left_out_and_what_only_both_save_is_kept() -> None:
    assert saved(outputs=15.5, gradients=0.01, all=15.5).count("MiB") == 1
    assert saved(outputs=0.0, gradients=0.01, all=0.01) == ""
    assert saved(outputs=0.0, gradients=0.0, all=3.0).count("nothing by itself") == 2
    assert saved(outputs=1.0, gradients=0.0, all=3.0).endswith("; both: -3.0 MiB.")


def test_a_lean_loop_has_none_and_never_shares_a_cell_with_the_documented_one() -> None:
    lean = comparison(result(FLAT, step_s=0.1, peak_mib=100.0, loop="lean"))
    assert told(lean, "Savings") == ""
    assert lean.steps.startswith("Steps follow the lean training loop")
    one = result(FLAT, step_s=0.1, peak_mib=100.0)
    other = result(FLAT, step_s=0.1, peak_mib=90.0, loop="lean", name="lean one")
    both = comparison(one, other)
    assert [both.place_name(cell) for cell in both.cells] == [
        "batch 4, sequence 512, loop documented",
        "batch 4, sequence 512, loop lean",
    ]
    assert dataclasses.replace(one.config, loop="lean") == other.config

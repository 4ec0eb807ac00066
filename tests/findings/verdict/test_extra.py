"""Where extra bytes and milliseconds go, and what a lean loop would save."""

import dataclasses

from example_findings import BUSY, FLAT, GHOST, HERE, OOM, STANDARD, run, steps, told
from example_results import MIB, comparison, result

from dpprof.findings.verdict.extra import fold_backward, parts_of, saving
from dpprof.pages.comparison.tables import added_table
from dpprof.pages.document import Bar, bare, inlines
from dpprof.record.figures.results import Result

ZEROED = "call `zero_grad(set_to_none=True)`"


def rows(*results: Result) -> list[list[str]]:
    """The rows of the table of what DP trainers add."""
    shown = added_table(comparison(*results)).rows
    return [["".join(map(bare, inlines(cell))) for cell in row if not isinstance(cell, Bar)] for row in shown]


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
    title = added_table(comparison(standard, private)).title
    assert title == f"What each DP trainer adds to standard, {HERE}"
    ((trainer, memory, peak, categories, time, ratio, phases, *moved),) = rows(standard, private)
    assert (trainer, memory, peak) == ("ghost", "+30.0", "backward")
    assert categories == "per-sample gradients +40.0, activations -10.0"
    assert (time, phases) == ("+150.0", "backward +120.0, noise +31.0")
    assert ratio.startswith("2.50 (2.50 to ")
    assert moved == ["+12.0", "noise +8.0, backward +4.0", "noise +8.0, matrix product +4.0"]


def test_small_times_and_sizes_are_told_with_their_digits() -> None:
    cells = [
        run(STANDARD, 0.00001, 0.001, at_peak={"parameters": 0.001}),
        run(FLAT, 0.00004, 0.003, at_peak={"parameters": 0.001, "noise": 0.002}),
    ]
    ((_, memory, _, _, time, *_),) = rows(*cells)
    assert (memory, time) == ("+0.002", "+0.03")


def test_a_difference_within_the_spread_has_no_parts_and_a_single_step_no_time() -> None:
    alike = rows(run(STANDARD, steps(0.2, 0.1), 9), run(FLAT, steps(0.202, 0.1), 9))
    assert [row[:2] for row in alike] == [["flat", "+0.0"]]
    assert alike[0][2] == "1.01 (0.84 to 1.22)"
    assert rows(run(STANDARD, [0.1], 9), run(FLAT, [0.1], 20)) == [["flat", "+11.0"]], "no parts were kept"


def test_where_runs_were_disturbed_no_time_is_told() -> None:
    found = rows(run(STANDARD, 0.1, 10, **BUSY), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    assert found == [["flat", "+30.0"], ["ghost", "+1.0"]]


def test_each_trainer_has_its_largest_place() -> None:
    cells = [run(t, 0.1, 10 * b, batch_size=b) for b in (2, 4) for t in (STANDARD, FLAT)]
    cells += [run(GHOST, 0.1, 30, batch_size=2), result(FLAT, batch_size=8, failure=OOM)]
    assert [row[:2] for row in rows(*cells)] == [
        ["flat", "tiny, batch 4, sequence 512"],
        ["ghost", "tiny, batch 2, sequence 512"],
    ]


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
    return "; ".join(map(str, saving(cell)))


def test_each_saving_has_its_bytes() -> None:
    standard = with_savings(STANDARD, outputs=15.5)
    flat = with_savings(FLAT, outputs=15.5, gradients=12.0, all=20.25)
    as_standard = with_savings(GHOST, outputs=15.5)
    _, first, second = told(comparison(standard, flat, as_standard), "Savings").splitlines()
    assert first.startswith(f"standard and ghost at {HERE}: ")
    assert first.endswith(": -15.5 MiB.")
    assert second.startswith(f"flat at {HERE}: {ZEROED}: -12.0 MiB; ")
    assert second.endswith("; both: -20.2 MiB.")


def test_a_saving_of_next_to_nothing_is_left_out_and_what_only_both_save_is_kept() -> None:
    assert saved(outputs=15.5, gradients=0.01, all=15.5).count("MiB") == 1
    assert saved(outputs=0.0, gradients=0.01, all=0.01) == ""
    assert saved(outputs=0.0, gradients=0.0, all=3.0).count("nothing by itself") == 2
    assert saved(outputs=1.0, gradients=0.0, all=3.0).endswith("; both: -3.0 MiB")


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

"""What a lean loop would save."""

import dataclasses

from example_findings import FLAT, HERE, STANDARD, findings, found
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.reports.comparison.findings.saving import Saving, Savings, in_words, saving
from dpprof.vocabulary.loops import GRADIENTS, OUTPUTS

MIB = 2**20


def with_savings(trainer: str, **saved: float) -> Result:
    made = result(trainer, step_s=0.1, peak_mib=100.0)
    assert made.record is not None
    made.record.memory.saved = {name: round(mib * MIB) for name, mib in saved.items()}
    return made


def saved(**mib: float) -> Saving | None:
    (cell,) = comparison(with_savings(FLAT, **mib)).cells
    return saving(cell, HERE)


def test_each_saving_has_its_bytes() -> None:
    standard = with_savings(STANDARD, outputs=15.5)
    flat = with_savings(FLAT, outputs=15.5, gradients=12.0, all=20.25)
    (finding,) = findings(comparison(standard, flat), Savings)
    assert finding.data.cells == (
        Saving(STANDARD, HERE, {OUTPUTS: 15.5}, None),
        Saving(FLAT, HERE, {GRADIENTS: 12.0, OUTPUTS: 15.5}, 20.25),
    )
    assert finding.points[1].startswith(f"flat at {HERE}: call `zero_grad(set_to_none=True)`: -12.0 MiB; ")
    assert finding.points[1].endswith("; both: -20.2 MiB.")


def test_a_saving_of_next_to_nothing_is_left_out() -> None:
    assert saved(outputs=15.5, gradients=0.01, all=15.5) == Saving(FLAT, HERE, {OUTPUTS: 15.5}, None)
    assert saved(outputs=0.0, gradients=0.01, all=0.01) is None


def test_what_only_both_save_is_kept() -> None:
    both = saved(outputs=0.0, gradients=0.0, all=3.0)
    assert both == Saving(FLAT, HERE, {GRADIENTS: 0.0, OUTPUTS: 0.0}, 3.0)
    assert in_words(both).count("nothing by itself") == 2
    assert saved(outputs=1.0, gradients=0.0, all=3.0) == Saving(
        FLAT, HERE, {GRADIENTS: 0.0, OUTPUTS: 1.0}, 3.0
    )


def test_a_lean_loop_has_none() -> None:
    lean = comparison(result(FLAT, step_s=0.1, peak_mib=100.0, loop="lean"))
    assert found(lean, Savings) == []
    assert lean.steps.startswith("Steps follow the lean training loop")


def test_the_two_loops_never_share_a_cell() -> None:
    one = result(FLAT, step_s=0.1, peak_mib=100.0)
    other = result(FLAT, step_s=0.1, peak_mib=90.0, loop="lean", name="lean one")
    both = comparison(one, other)
    assert len(both.cells) == len(both.places) == 2
    assert [both.place_name(cell) for cell in both.cells] == [
        "batch 4, sequence 512, loop documented",
        "batch 4, sequence 512, loop lean",
    ]
    assert dataclasses.replace(one.config, loop="lean") == other.config

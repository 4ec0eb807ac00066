import dataclasses

from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.reports.comparison.savings import savings
from dpprof.reports.comparison.verdict import verdict

MIB = 2**20
OUTPUT = "write `loss = criterion(model(x), y)`, without a variable for the model's output"
GRADIENTS = "call `zero_grad(set_to_none=True)`"


def with_savings(trainer: str, **saved: float) -> Result:
    found = result(trainer, step_s=0.1, peak_mib=100.0)
    assert found.record is not None
    found.record.memory.saved = {name: round(mib * MIB) for name, mib in saved.items()}
    return found


def test_each_saving_is_named_with_its_bytes() -> None:
    standard = with_savings("StandardTrainer", outputs=15.5)
    flat = with_savings("DPSGDTrainer", outputs=15.5, gradients=12.0, all=20.25)
    (found,) = (f for f in verdict(comparison(standard, flat)) if f.topic == "Savings")
    assert found.points == [
        f"StandardTrainer at tiny, batch 4, sequence 512: {OUTPUT}: -15.5 MiB.",
        f"DPSGDTrainer at tiny, batch 4, sequence 512: {GRADIENTS}: -12.0 MiB; {OUTPUT}: -15.5 MiB; "
        "both: -20.2 MiB.",
    ]


def test_a_saving_of_next_to_nothing_is_not_named() -> None:
    (cell,) = comparison(with_savings("DPSGDTrainer", outputs=15.5, gradients=0.01, all=15.5)).cells
    assert savings(cell) == f"{OUTPUT}: -15.5 MiB."
    (cell,) = comparison(with_savings("DPSGDTrainer", outputs=0.0, gradients=0.01, all=0.01)).cells
    assert savings(cell) is None


def test_what_only_both_save_is_named() -> None:
    (cell,) = comparison(with_savings("DPSGDTrainer", outputs=0.0, gradients=0.0, all=3.0)).cells
    nothing = "nothing by itself"
    assert savings(cell) == f"{GRADIENTS}: {nothing}; {OUTPUT}: {nothing}; both: -3.0 MiB."
    (cell,) = comparison(with_savings("DPSGDTrainer", outputs=1.0, gradients=0.0, all=3.0)).cells
    assert savings(cell) == f"{GRADIENTS}: {nothing}; {OUTPUT}: -1.0 MiB; both: -3.0 MiB."


def test_a_lean_loop_has_none_to_name() -> None:
    found = comparison(result("DPSGDTrainer", step_s=0.1, peak_mib=100.0, loop="lean"))
    assert not [f for f in verdict(found) if f.topic == "Savings"]
    assert found.steps.startswith("Steps follow the lean training loop")


def test_the_two_loops_never_share_a_cell() -> None:
    one = result("DPSGDTrainer", step_s=0.1, peak_mib=100.0)
    other = result("DPSGDTrainer", step_s=0.1, peak_mib=90.0, loop="lean", name="lean one")
    found = comparison(one, other)
    assert len(found.cells) == len(found.places) == 2
    assert [found.place_name(cell) for cell in found.cells] == [
        "batch 4, sequence 512, loop documented",
        "batch 4, sequence 512, loop lean",
    ]
    assert dataclasses.replace(one.config, loop="lean") == other.config

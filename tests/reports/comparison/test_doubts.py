import dataclasses

import pytest
from example_results import comparison, result

from dpprof.record import GradientCheck
from dpprof.reports.comparison.doubts import doubts

SAME = {"torch_version": "2.13.0", "cpu": "X", "opacus_version": "1.6.0"}


def test_runs_of_one_machine_are_in_no_doubt() -> None:
    pair = [result(trainer, step_s=0.1, environment=SAME) for trainer in ("StandardTrainer", "DPSGDTrainer")]
    assert doubts(comparison(*pair)) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("torch_version", "torch"), ("opacus_version", "Opacus"), ("cpu", "processor"), ("gpu", "GPU")],
)
def test_runs_of_different_machines_or_versions_are(name: str, shown: str) -> None:
    other = result("DPSGDTrainer", step_s=0.1, environment=SAME | {name: "other"})
    (doubt,) = doubts(comparison(result(step_s=0.1, environment=SAME), other))
    assert (
        doubt == f"These runs differ in {shown} ({', '.join(sorted([SAME.get(name, 'none'), 'other']))}): "
        "their figures need not compare."
    )


def test_different_precisions_are() -> None:
    runs = [result(step_s=0.1, precision=p, name=p, environment=SAME) for p in ("bf16", "fp32")]
    assert doubts(comparison(*runs)) == [
        "These runs differ in precision (bf16, fp32): only rows of one precision compare."
    ]


def test_a_ledger_that_does_not_see_everything_is() -> None:
    (doubt,) = doubts(comparison(result(step_s=0.1, peak_mib=100, at_peak={"noise": 90})))
    assert "10.0 % less than the allocator's peak" in doubt


def test_restless_steps_are() -> None:
    steps = [0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3]
    (doubt,) = doubts(comparison(result(step_s=steps), result("DPSGDTrainer", step_s=[0.1] * 7)))
    assert doubt.startswith("The steps of 1 of 2 experiments vary by more than 25 %")
    assert doubt.endswith("(StandardTrainer_tiny_bs4_seq512)")


def test_checks_that_failed_or_cannot_tell_come_first_those_of_one_reason_together() -> None:
    checks = {
        "fine": GradientCheck(0.0, 0.0),
        "a": GradientCheck(doubt="it draws lots"),
        "b": GradientCheck(fault="samples mix"),
        "c": GradientCheck(doubt="it draws lots"),
    }
    runs = [
        result(step_s=0.1, name=name, check=check, seed=i, environment={"cpu": name})
        for i, (name, check) in enumerate(checks.items())
    ]
    found = doubts(comparison(*runs))
    assert found[:2] == [
        "The gradient check failed in 1 of 4 runs (b): samples mix.",
        "The gradient check cannot tell in 2 of 4 runs (a, c): it draws lots.",
    ]
    assert len(found) == 3, "that they differ in the processor is the third"


def test_losses_that_are_not_finite_are() -> None:
    run = result(step_s=0.1, name="run")
    assert run.record is not None
    wrong = dataclasses.replace(run, record=dataclasses.replace(run.record, nonfinite_losses=3))
    assert doubts(comparison(wrong)) == ["run: 3 of 8 losses are NaN or infinite. Its steps do not train."]

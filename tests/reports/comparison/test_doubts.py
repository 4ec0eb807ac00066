import pytest
from example_results import comparison, result

from dpprof.reports.comparison.cells import Comparison
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


def test_what_to_know_of_a_workload_is_told_once() -> None:
    pair = [result(step_s=0.1), result("DPSGDTrainer", step_s=0.1)]
    assert pair[1].record is not None
    pair[1].record.warnings.append("the model holds parameters")
    found = comparison(*pair)
    assert doubts(found) == ["In 1 of 2 runs the model holds parameters."]
    assert doubts(Comparison.from_json(found.to_json())) == doubts(found)

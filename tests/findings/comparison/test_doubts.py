import dataclasses
import json

import pytest
from example_results import comparison, result

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.record.record import GradientCheck

SAME = {"torch_version": "2.13.0", "cpu": "X", "opacus_version": "1.6.0"}


def test_runs_of_one_machine_are_in_no_doubt() -> None:
    pair = [
        result(trainer, step_s=0.1, environment=SAME | {"host": trainer})
        for trainer in ("StandardTrainer", "DPSGDTrainer")
    ]
    assert doubts(comparison(*pair)) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("torch_version", "torch"), ("opacus_version", "Opacus"), ("cpu", "processor"), ("gpu", "GPU")],
)
def test_runs_of_different_machines_or_versions_are(name: str, shown: str) -> None:
    other = result("DPSGDTrainer", step_s=0.1, environment=SAME | {name: "other"})
    (doubt,) = doubts(comparison(result(step_s=0.1, environment=SAME), other))
    values = ", ".join(sorted([SAME.get(name, "none"), "other"]))
    assert doubt.startswith(f"These runs differ in {shown} ({values}): ")


def test_runs_of_one_experiment_on_unlike_machines_are_twice() -> None:
    """Once that machines differ at all, once that they share a cell."""
    here = result(step_s=0.1, environment=SAME, name="a")
    there = result(step_s=0.1, environment=SAME | {"gpu": "B", "host": "n2"}, name="a_r2")
    flat = result("DPSGDTrainer", step_s=0.1, environment=SAME | {"gpu": "B"})
    differ, shared = doubts(comparison(here, there, flat))
    assert differ.startswith("These runs differ in GPU (B, none): ")
    runs = [result(step_s=0.1, precision=p, name=p, environment=SAME) for p in ("bf16", "fp32")]
    (doubt,) = doubts(comparison(*runs))
    assert doubt.startswith("These runs differ in precision (bf16, fp32): ")
    assert shared.startswith("1 of 2 experiments have runs that differ in GPU (a), ")


def test_runs_whose_weights_differ_in_type_are() -> None:
    short, wide = (result(step_s=0.1, seq_len=n, weights=w) for n, w in ((8, {"bf16": 1}), (9, {"fp32": 1})))
    (doubt,) = doubts(comparison(short, wide, result(step_s=0.1, seq_len=10)))
    assert doubt.startswith("These runs differ in type of weights (bf16, fp32): compare only rows")
    runs = [result(step_s=0.1, name=dtype, weights={dtype: 1}) for dtype in ("fp32", "bf16")]
    differ, mixed = doubts(comparison(*runs))
    assert differ == doubt
    assert mixed.startswith("The runs of fp32 have weights of different types (bf16, fp32), ")


@pytest.mark.usefixtures("limited")
def test_another_algorithm_is_named_as_such() -> None:
    other = result("LimitedTrainer", step_s=0.1, environment=SAME)
    (doubt,) = doubts(comparison(result("DPSGDTrainer", step_s=0.1, environment=SAME), other))
    assert doubt.startswith("limited is not DP-SGD with flat clipping: ")
    found = comparison(result("DPBookKeepingTrainer", step_s=0.1, environment=SAME))
    assert doubts(found) == []
    found.cells[0].settings["clipping"] = "automatic"
    (doubt,) = doubts(found)
    assert doubt.startswith("bk with clipping=automatic is not DP-SGD")


def test_a_ledger_that_does_not_see_everything_is() -> None:
    (doubt,) = doubts(comparison(result(step_s=0.1, peak_mib=100, at_peak={"noise": 90})))
    assert "10.0 % less than the allocator's peak" in doubt


BUSY = {"cpu_cores": "2", "torch_threads": "2"}


def test_disturbed_runs_are_with_the_reasons_and_what_to_do() -> None:
    restless = result(step_s=[0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3])
    beside = result("DPSGDTrainer", step_s=[0.1] * 7, others_processors=1.0, environment=BUSY)
    calm = result("DPGhostClippingTrainer", step_s=[0.1] * 7, others_processors=0.02, environment=BUSY)
    (doubt,) = doubts(comparison(restless, beside, calm))
    for said in (
        "2 of 3 runs",
        "StandardTrainer_tiny_bs4_seq512: the interquartile range of its steps is 50 %",
        "DPSGDTrainer_tiny_bs4_seq512: other processes used 1.0 of 2 processors",
        "at tiny, batch 4, sequence 512",
        "--repeats 3 --passes clean,pace,memory",
    ):
        assert said in doubt
    assert "DPGhostClippingTrainer" not in doubt


def test_disturbed_runs_that_have_calm_twins_are_said_to_be_left_out() -> None:
    runs = [
        result(step_s=[0.1] * 7, name=name, others_processors=others, environment=BUSY)
        for name, others in (("one", 0.0), ("two", 1.0), ("three", 0.0))
    ]
    (doubt,) = doubts(comparison(*runs))
    assert doubt.startswith("Left out: 1 of 3 runs")
    assert "(two: other processes used 1.0 of 2 processors)" in doubt


def test_of_many_disturbed_runs_and_places_a_few_are_named() -> None:
    cells = [
        result(step_s=[0.1] * 7, others_processors=others, environment=BUSY, batch_size=batch)
        for batch, others in zip(range(1, 9), [1.0] * 6 + [0.0] * 2, strict=True)
    ]
    (doubt,) = doubts(comparison(*cells))
    assert doubt.startswith("Disturbed while timed: 6 of 8 runs (")
    assert doubt.count("other processes used") == 4
    assert "bs4_seq512: other processes used 1.0 of 2 processors; 2 more), so" in doubt
    assert "tiny, batch 4, sequence 512; 2 more. Repeat" in doubt
    (everywhere,) = doubts(comparison(*cells[:2]))
    assert "has an interval at any of the 2 places. Repeat" in everywhere


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
        "The gradient check could not tell in 2 of 4 runs (a, c): it draws lots.",
    ]
    assert len(found) == 3, "that they differ in the processor is the third"


def test_losses_that_are_not_finite_are() -> None:
    run = result(step_s=0.1, name="run")
    assert run.record is not None
    wrong = dataclasses.replace(run, record=dataclasses.replace(run.record, nonfinite_losses=3))
    assert doubts(comparison(wrong)) == [
        "run: 3 of 8 losses are NaN or infinite. Its steps do not train the model."
    ]


def test_what_to_know_of_a_workload_is_told_once() -> None:
    pair = [result(step_s=0.1), result("DPSGDTrainer", step_s=0.1)]
    assert pair[1].record is not None
    pair[1].record.warnings.append("the model holds parameters")
    found = comparison(*pair)
    assert doubts(found) == ["The model holds parameters (1 of 2 runs)."]
    assert doubts(Comparison.from_data(json.loads(found.to_json()))) == doubts(found)

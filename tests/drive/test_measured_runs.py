"""Which finished runs tell of a plan's times."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from example_estimates import estimate, measured
from example_results import groups_of, result
from example_runs import known

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.drive.measured_runs import _is_on_its_device, _is_ours, measured_runs, tells
from dpprof.drive.plan import Plan
from dpprof.findings.fit import Answer
from dpprof.process import processor
from dpprof.record.folder import SweepFolder


def plan(**settings: object) -> ExperimentConfig:
    asked = {"trainer": "bk", "model_size": "tiny", "device": "cpu"} | settings
    return parse_experiment(asked, EstimatingConfig).resolve(cuda_available=True)


@pytest.mark.parametrize(
    ("target", "gpu", "is_same"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H100 PCIe", False),
        ("L4", "NVIDIA L40S", False),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("none", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_only_runs_on_the_very_gpu_tell(target: str, gpu: str, is_same: bool) -> None:
    run = result("DPBookKeepingTrainer", step_s=1.0, environment={"gpu": gpu})
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, device="cuda"))
    config = plan(device="cuda", target=target, device_memory_gib=40)
    assert _is_on_its_device(run, config) is is_same


def test_runs_on_another_processor_have_to_be_named() -> None:
    for environment in (processor(), {"cpu": "another"}):
        found = _is_ours(result("DPSGDTrainer", step_s=1.0, environment=environment))
        assert found == (environment == processor())


@pytest.mark.parametrize(
    ("run", "planned", "is_told"),
    [
        ({}, {}, True),
        ({"batch_size": 9, "lr": 0.5, "noise_multiplier": 3.0}, {}, True),
        ({"accumulation_steps": 2}, {}, False),
        ({"momentum": 0.9}, {}, False),
        ({"loop": "lean"}, {}, False),
        ({"norm": "gram"}, {}, False),
        ({}, {"parallel": "ddp", "world_size": 8}, True),
        ({"parallel": "ddp", "world_size": 8}, {"parallel": "ddp", "world_size": 8}, True),
        ({"parallel": "ddp", "world_size": 2}, {"parallel": "ddp", "world_size": 8}, False),
        ({"parallel": "ddp", "world_size": 8}, {}, False),
        ({}, {"parallel": "fsdp2", "world_size": 8}, False),
    ],
)
def test_what_was_trained_must_be_the_same(
    run: dict[str, Any], planned: dict[str, Any], is_told: bool
) -> None:
    made = result("DPBookKeepingTrainer", step_s=1.0)
    assert tells(dataclasses.replace(made, config=plan(**run)), plan(**planned)) is is_told


def test_none_stands_for_no_run(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "plan")
    assert measured_runs("none", {"one": plan()}, folder, pytest.fail) == {}


@pytest.mark.parametrize(
    ("weights", "names", "unlike"),
    [({"bf16": 1}, ("a/b",), ()), ({"fp32": 1}, (), ("a/b",)), ({}, ("a/b",), ())],
)
def test_a_plan_leaves_out_steps_of_weights_of_another_type_and_says_so(
    weights: dict[str, int], names: tuple[str, ...], unlike: tuple[str, ...]
) -> None:
    guess, run = estimate(weights={"bf16": 1}), measured()
    known(run.record).parameters = groups_of(weights)
    made = {"experiments": {"x": guess.config}, "evaluated": {"x": [guess]}, "measured": {"a/b": run}}
    of_plan: Any = SimpleNamespace(**made)
    answer = Answer(guess.config, "batch_size", "", 4, 1, guess, weights_dtype=guess.weights_dtype)
    fitted = Plan._fitted(of_plan, "x", answer)
    assert (fitted.measured.names if fitted.measured else ()) == names
    assert (fitted.unlike, fitted.weights_dtype) == (unlike, "bf16")

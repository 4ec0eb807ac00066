"""What a plan is made from: trainers, rows of another plan, and runs that tell of its times."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import refusal
from example_estimates import estimate, measured
from example_results import groups_of, result
from example_runs import known

from dpprof.config.drive import DriveConfig
from dpprof.config.entry_points import PlanConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.launch.launcher import make_launcher
from dpprof.drive.measured_runs import _is_on_its_device, _is_ours, measured_runs, tells
from dpprof.drive.plan import Plan, experiments_to_plan
from dpprof.drive.planned_row import PlannedRow
from dpprof.errors import ConfigError
from dpprof.findings.fit import Answer
from dpprof.process import processor
from dpprof.record.folder import SweepFolder
from dpprof.record.record import Predicted

MODEL = {"model_size": "tiny", "seq_len": "16", "target": "H100"}


def planned(**asked: str) -> tuple[list[str], dict[str, str]]:
    settings = {name: value for name, value in asked.items() if name != "trainers"}
    own: dict[str, Any] = {name: value for name, value in asked.items() if name == "trainers"}
    launcher = make_launcher(DriveConfig())
    found, left_out = experiments_to_plan(PlanConfig(**own), MODEL | settings, launcher)
    return [config.trainer for config in found.values()], left_out


@pytest.mark.usefixtures("limited")
def test_a_trainer_that_cannot_split_a_batch_or_that_a_setting_excludes_is_left_out() -> None:
    found, left_out = planned(trainers="all,limited")
    assert len(found) == 5
    assert "StandardTrainer" not in found
    assert list(left_out) == ["LimitedTrainer"]
    assert "1 with limited" in left_out["LimitedTrainer"]
    found, left_out = planned(trainers="limited,bk", precision="bf16")
    assert found == ["DPBookKeepingTrainer"]
    assert "fp32 with limited" in left_out["LimitedTrainer"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"trainers": "limited"}, r"trainers: none of them can be planned \(limited: accumulation_steps"),
        ({"trainers": "standard"}, "trainers: got 'standard', allowed: at least one that trains with"),
        ({"trainers": "nobody"}, "trainers: got 'nobody'"),
        ({"parallel": "dpp"}, "parallel: got 'dpp', allowed: none, ddp, fsdp2"),
        ({"precision": "fp8"}, "precision: got 'fp8'"),
    ],
)
@pytest.mark.usefixtures("limited")
def test_what_cannot_be_planned_is_named(asked: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(**asked)


SETTINGS = {"trainer": "bk", "model_size": "tiny", "batch_size": 8, "accumulation_steps": 3, "norm": "gram"}
DEFAULTS = {"trainer": "StandardTrainer", "batch_size": "4", "accumulation_steps": "1", "passes": "clean"}


def row() -> PlannedRow:
    config = parse_experiment(SETTINGS, MeasuringConfig)
    return PlannedRow(to_flat(config), Predicted("plan"))


def test_what_is_given_comes_first() -> None:
    filled = row().fill(DEFAULTS, "profile")
    assert filled.items() >= DEFAULTS.items()
    assert filled["model_size"] == "tiny"
    assert "norm" not in filled, "an option of the plan's trainer"


def test_without_a_parallel_way_there_is_one_rank() -> None:
    asked = parse_experiment(SETTINGS | {"parallel": "ddp", "world_size": 8}, MeasuringConfig)
    of_ranks = PlannedRow(to_flat(asked), Predicted("plan"))
    assert of_ranks.fill({}, "profile")["world_size"] == 8
    filled = of_ranks.fill({"parallel": "none"}, "profile")
    config = parse_experiment(filled, MeasuringConfig)
    assert config.world_size == 1
    assert of_ranks.differences(config)[0] == "parallel is none, in the plan ddp"


def test_the_headroom_is_for_commands_that_take_one() -> None:
    kept = dataclasses.replace(row(), headroom="0%")
    assert kept.fill({}, "advise")["headroom"] == "0%"
    assert kept.fill({"headroom": "5%"}, "advise")["headroom"] == "5%"
    assert "headroom" not in kept.fill({}, "profile")


def test_a_row_for_many_gpus_is_not_started_on_the_processor_unless_it_is_made_small() -> None:
    on_gpus = SETTINGS | {"device": "cuda", "parallel": "ddp", "world_size": 8}
    config = to_flat(parse_experiment(on_gpus, MeasuringConfig))
    large = PlannedRow(config, Predicted("plan", peak_bytes=2**38))
    on_cpu: dict[str, object] = {"device": "cpu"}
    said = {"its row may not fit this machine": on_cpu, "torch finds no CUDA device here": {}}
    for words, given in said.items():
        assert words in refusal(large.fill, given, "profile", has_cuda=False)
    assert large.fill(on_cpu | {"model_size": "mini"}, "profile", has_cuda=False)["model_size"] == "mini"
    assert large.fill({}, "profile", has_cuda=True)["device"] == "cuda"
    assert large.fill(on_cpu, "advise")["device"] == "cpu", "an estimate"
    small = PlannedRow(config, Predicted("plan", peak_bytes=2**20))
    assert small.fill(on_cpu, "verify", has_cuda=False)["device"] == "cpu"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"noise_multiplier": 0.5, "max_grad_norm": 2.0, "seed": 3}, []),
        ({"momentum": 0.9}, ["momentum is 0.9, in the plan 0.0"]),
        ({"noise_multiplier": 0.0}, ["noise_multiplier is 0: no noise is drawn"]),
        ({"norm": "blocked"}, ["the options of its trainer or workload are others"]),
    ],
)
def test_what_memory_or_time_depends_on_is_not_compared(other: dict[str, object], said: list[str]) -> None:
    assert row().differences(parse_experiment({**SETTINGS, **other}, MeasuringConfig)) == said


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

"""Gradients of parameters: hooks are called or refused, and a gradient that a trainer loses is named."""

import dataclasses
from typing import Any

import pytest
import torch
from covering import product
from example_config import experiment
from example_hooked import AFTER, ON_GRADIENT
from example_runs import known
from torch import Tensor, nn
from trap_cases import CONFIG, PRIVATE, said

from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.training import Training
from dpprof.vocabulary.trainers import BUILT_IN, STANDARD

OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")
LOOKING = {"looking": ON_GRADIENT, "looking_after": AFTER}
CHANGING = {"scaling": ON_GRADIENT, "scaling_in_place": ON_GRADIENT, "scaling_after": AFTER}
CHANGING |= {"stepping": AFTER}


def trained(workload: str, trainer: str, num_steps: int = 2) -> Training:
    config = dataclasses.replace(CONFIG, workload=f"example_hooked:{workload}", trainer=trainer)
    training = Training(config)
    training.run(num_steps, Observer())
    return training


@pytest.mark.parametrize(("workload", "trainer"), product(CHANGING, PRIVATE))
def test_opacus_refuses_hooks_that_change_something(workload: str, trainer: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        trained(workload, trainer)
    assert str(refused.value) == said("gradient_hook", parameter="0.weight", method=CHANGING[workload])


@pytest.mark.parametrize(("workload", "trainer"), product(LOOKING, PRIVATE))
def test_opacus_calls_hooks_that_only_look_and_warns(workload: str, trainer: str) -> None:
    (warning,) = trained(workload, trainer).trainer.warnings()
    assert warning.startswith(f"0.weight: Opacus calls the hooks ({LOOKING[workload]}) ")


@pytest.mark.parametrize(("workload", "trainer"), product(LOOKING | CHANGING, OWN))
def test_trainers_of_dpprof_refuse_all_hooks(workload: str, trainer: str) -> None:
    method = (LOOKING | CHANGING)[workload]
    with pytest.raises(WorkloadError, match=rf"^0.weight has a hook \({method}\), and before"):
        trained(workload, trainer)


@pytest.mark.parametrize("workload", LOOKING | CHANGING)
def test_standard_training_calls_every_hook(workload: str) -> None:
    assert trained(workload, STANDARD).trainer.warnings() == []


def test_standard_training_uses_what_a_hook_returns() -> None:
    of_looking, of_scaling = (
        known(trained(workload, STANDARD, num_steps=1).model.get_parameter("0.weight").grad)
        for workload in ("looking", "scaling")
    )
    assert torch.equal(of_scaling, 0.5 * of_looking)


@pytest.mark.parametrize("trainer", [*PRIVATE, *OWN])
def test_a_hook_of_a_frozen_parameter_is_no_hindrance(trainer: str) -> None:
    assert trained("frozen", trainer).trainer.warnings() == []


ALL_PRIVATE = [info.name for info in BUILT_IN if info.is_private]


def training_of(trainer: str, **settings: Any) -> Training:
    settings = {"workload": "example_workloads:mlp", "batch_size": 3, "device": "cpu", **settings}
    config = experiment(trainer=trainer, **settings).resolve(cuda_available=False)
    return Training(config)


@pytest.mark.parametrize("trainer", ALL_PRIVATE)
def test_a_weight_without_its_gradient_is_named(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of(trainer)
    training.run(1, Observer())
    assert training.lost_gradients() == []
    own, (*_, last) = training.trainer.step, training.trainer.parameters

    def losing(batches: tuple[Any, ...]) -> None:
        own(batches)
        last.grad = torch.zeros_like(last)

    monkeypatch.setattr(training.trainer, "step", losing)
    assert training.lost_gradients() == ["2.bias"]
    assert training.trainer.noise_multiplier == experiment().noise_multiplier


def test_a_weight_that_the_loss_does_not_need_is_not_lost() -> None:
    training = training_of("DPBookKeepingTrainer", workload="example_workloads:with_unused_layer")
    assert training.lost_gradients() == []


def test_a_weight_that_has_a_gradient_only_after_the_first_step_is_not_lost() -> None:
    """As the first matrix of an adapter, whose second begins at 0."""
    training = training_of("DPMixedGhostTrainer", poisson_sampling=True, batch_size=1)
    trainer = training.trainer
    with torch.no_grad():
        trainer.parameters[2].zero_()
    assert isinstance(trainer.model, nn.Sequential)
    assert training.lost_gradients() == []
    assert isinstance(trainer.parameters[0].grad, Tensor)
    assert trainer.parameters[0].grad.any()

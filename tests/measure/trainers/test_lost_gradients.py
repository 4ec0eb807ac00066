"""A weight that the loss has a gradient for, and the trainer none: found for every private trainer."""

from typing import Any

import pytest
import torch
from example_config import experiment
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.training import Training
from dpprof.vocabulary.trainers import BUILT_IN

PRIVATE = [info.name for info in BUILT_IN if info.is_private]


def training_of(trainer: str, **settings: Any) -> Training:
    settings = {"workload": "example_workloads:mlp", "batch_size": 3, "device": "cpu", **settings}
    config = experiment(trainer=trainer, **settings).resolve(cuda_available=False)
    return Training(config)


@pytest.mark.parametrize("trainer", PRIVATE)
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

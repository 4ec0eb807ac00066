"""The trial before the first step tells rows of samples from rows that all samples share."""

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from example_layers import Applied
from example_unusual import LENGTH
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.build import build_trainer, load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.reference import clipped_mean, gradients_of, relative_error
from dpprof.measure.trainers.reference import naive_per_sample_gradients as naive
from dpprof.measure.trainers.training import Training
from dpprof.measure.trainers.trial_batch import Trial, tried
from dpprof.measure.workload_check import check_training
from dpprof.measure.workloads.workload import build_workload

OPACUS = ("DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")
OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")


def configured(trainer: str, workload: str, **settings: Any) -> ExperimentConfig:
    module = __name__ if workload in globals() else "example_unusual"
    config = ExperimentConfig(trainer=trainer, workload=f"{module}:{workload}", batch_size=LENGTH)
    return dataclasses.replace(config, **settings).resolve(cuda_available=False)


class Numbered(nn.Module):
    """Counts its calls in a buffer, and draws a random number in each."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return self.inner(x) + torch.rand(())


def numbered(config: ExperimentConfig) -> tuple[Any, ...]:
    return _of(Numbered(), config)


def of_five(config: ExperimentConfig) -> tuple[Any, ...]:
    return _of(Applied(nn.Linear(3, 3), lambda layer, x: layer(x.reshape(5, 3))), config)


class Scaled(nn.Module):
    """Has no rule: scales by a parameter and by a tensor with a row for each of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self, x: Tensor, heads: Tensor) -> Any:
        return x * self.weight * heads.sum()


def headed(config: ExperimentConfig) -> tuple[Any, ...]:
    heads = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    return _of(Applied(Scaled(), lambda layer, x: layer(x, heads.to(x))), config)


def _of(model: nn.Module, config: ExperimentConfig) -> tuple[Any, ...]:
    batches = iter(lambda: (torch.randn(config.batch_size, 3), torch.zeros(config.batch_size)), None)
    return model, batches, lambda outputs, targets: outputs.sum(1) - targets


@pytest.mark.parametrize("on_fakes", [False, True])
@pytest.mark.parametrize("trainer", [*OPACUS, *OWN])
def test_a_layer_that_gets_as_many_rows_as_there_are_samples_is_named(trainer: str, on_fakes: bool) -> None:
    config = configured(trainer, "relative_embedding")
    said = r"^1\.bias (gets an input of 5 rows|is called with a tensor of shape \(5, 5\) whose rows)"
    place = fake_tensors(load_trainer(trainer)) if on_fakes else nullcontext()
    with place, pytest.raises((DpprofError, ValueError), match=said):
        Training(config).run(1, Observer())


def test_the_check_of_a_workload_names_it() -> None:
    answer = check_training([configured(t, "relative_embedding") for t in ("DPSGDTrainer", *OWN)], print)
    assert not any(answer.trains.values())
    assert all(finding.text.count("1.bias") for finding in answer.findings)


@pytest.mark.parametrize(
    ("workload", "num_samples", "trained_before", "bound"),
    [("relative", LENGTH, 0, 0.1), ("headed", 2, 4, 100.0)],
    ids=["as many as positions", "as many as the trial"],
)
@pytest.mark.parametrize("trainer", OWN)
def test_a_sampled_batch_of_as_many_samples_has_the_gradient_of_the_naive_loop(
    trainer: str, workload: str, num_samples: int, trained_before: int, bound: float
) -> None:
    config = configured(trainer, workload, batch_size=4, noise_multiplier=0.0, max_grad_norm=bound)
    built = build_workload(dataclasses.replace(config, batch_size=max(num_samples, trained_before)))
    built.model.double()
    inputs, targets = next(iter(built.batches))
    batch = (inputs[:num_samples].double(), targets[:num_samples])
    right = clipped_mean(naive(built.model, built.loss, batch, num_samples), bound)
    trainer_ = build_trainer(dataclasses.replace(config, poisson_sampling=True, lr=0.0), built)
    for physical in ((inputs.double(), targets), batch) if trained_before else (batch,):
        trainer_.train_on([physical])  # type: ignore[attr-defined]
    found = [gradient * 4 / num_samples for gradient in gradients_of(trainer_.parameters)]
    assert relative_error(found, right) < 1e-12


def test_a_model_of_one_batch_size_is_named() -> None:
    config = configured("DPBookKeepingTrainer", "of_five")
    with pytest.raises(WorkloadError, match="the model takes 5 samples and fails with 2 "):
        Training(config).run(1, Observer())


def test_the_trial_changes_nothing() -> None:
    config = configured("DPBookKeepingTrainer", "numbered")
    workload = build_workload(config)
    trainer = build_trainer(config, workload)
    batch = next(iter(workload.batches))
    before = torch.get_rng_state()
    trial = tried(trainer, batch, LENGTH)
    assert trial.size not in (3, LENGTH)
    assert torch.equal(torch.get_rng_state(), before)
    assert not workload.model.get_buffer("calls").any()


def test_what_the_trial_did_not_see_is_refused_where_it_could_be_either() -> None:
    trial = Trial(2)
    trial.lengths["both", ""] = {2, 5}
    trial.lengths["shared", ""] = {7}
    trial.lengths["of samples", ""] = {2}
    assert trial.begins_with_batch(torch.zeros(5, 5), 5, "of samples")
    assert not trial.begins_with_batch(torch.zeros(5, 5), 5, "shared")
    for path in ("both", "unseen"):
        assert trial.begins_with_batch(torch.zeros(4, 5), 4, path)
        with pytest.raises(WorkloadError, match=f"{path} is called with a tensor of shape"):
            trial.begins_with_batch(torch.zeros(5, 5), 5, path)

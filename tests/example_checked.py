"""Workloads that the gradient check judges: some have no one gradient, one leaks between samples."""

from collections.abc import Callable
from typing import Any

import torch
from example_workloads import mlp
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig


class Layers(nn.Sequential):
    """The MLP's layers, with whatever a test puts between and after them."""

    def __init__(self, between: nn.Module | None = None, after: nn.Module | None = None) -> None:
        middle, last = ([m] if m is not None else [] for m in (between, after))
        super().__init__(nn.Linear(20, 32), nn.ReLU(), *middle, nn.Linear(32, 5), *last)


class Function(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class CountsCalls(nn.Module):
    """Scales by how often it has been called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + self.calls / 10)


def _refuse_float64(x: Tensor) -> Tensor:
    if x.dtype == torch.float64:
        raise RuntimeError("float64 is beyond me")
    return x


def with_dropout(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with dropout."""
    _, batches, loss = mlp(config)
    return Layers(nn.Dropout(0.5)), batches, loss


def with_functional_dropout(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a dropout that no module holds."""
    _, batches, loss = mlp(config)
    return Layers(Function(nn.functional.dropout)), batches, loss


def with_state(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with state that goes from one call to the next."""
    _, batches, loss = mlp(config)
    return Layers(CountsCalls()), batches, loss


def mixing_samples(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with outputs centred over the batch."""
    _, batches, loss = mlp(config)
    return Layers(after=Function(lambda x: x - x.mean(dim=0))), batches, loss


def partly_float32(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss in float32, whatever its weights are in."""
    _, batches, loss = mlp(config)
    return Layers(after=Function(Tensor.float)), batches, loss


def without_float64(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, which fails in float64."""
    _, batches, loss = mlp(config)
    return Layers(Function(_refuse_float64)), batches, loss


def nan_losses(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with losses that are NaN."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(outputs, targets) * torch.nan


def flat_loss(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss that no weight changes."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(0 * outputs, targets)


def with_noisy_gradients(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with noise in backward alone."""
    _, batches, loss = mlp(config)

    def noisy(x: Tensor) -> Tensor:
        factor = torch.rand_like(x)
        return x + factor * x - (factor * x).detach()

    return Layers(Function(noisy)), batches, loss


def nan_gradients(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with finite losses whose gradients are not."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(outputs, targets) + (0 * outputs).sqrt().sum(1)


def beyond_float32(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with losses that float64 can hold and float32 cannot."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(outputs, targets) * 1e30 * 1e30

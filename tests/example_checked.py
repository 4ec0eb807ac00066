"""Workloads that the gradient check judges: some have no one gradient, one leaks between samples."""

from collections.abc import Callable
from typing import Any

import torch
from example_trapped import Factory
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


def refuse_float64(x: Tensor) -> Tensor:
    if x.dtype == torch.float64:
        raise RuntimeError("float64 is beyond me")
    return x


def _of(make: Callable[[], nn.Module]) -> Factory:
    """The MLP's batches and loss with another model."""
    return lambda config: (make(), *mlp(config)[1:])


def _losing(change: Callable[[Tensor, Tensor], Tensor]) -> Factory:
    """The MLP with losses that are changed, by its outputs too."""

    def workload(config: ExperimentConfig) -> tuple[Any, ...]:
        model, batches, loss = mlp(config)
        return model, batches, lambda outputs, targets: change(loss(outputs, targets), outputs)

    return workload


def _noisy(x: Tensor) -> Tensor:
    """Noise in backward alone."""
    factor = torch.rand_like(x)
    return x + factor * x - (factor * x).detach()


def flat_loss(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss that no weight changes."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(0 * outputs, targets)


with_dropout = _of(lambda: Layers(nn.Dropout(0.5)))
with_functional_dropout = _of(lambda: Layers(Function(nn.functional.dropout)))
with_state = _of(lambda: Layers(CountsCalls()))
with_noisy_gradients = _of(lambda: Layers(Function(_noisy)))
without_float64 = _of(lambda: Layers(Function(refuse_float64)))
mixing_samples = _of(lambda: Layers(after=Function(lambda x: x - x.mean(dim=0))))
# Its loss is in float32, whatever its weights are in.
partly_float32 = _of(lambda: Layers(after=Function(Tensor.float)))
nan_losses = _losing(lambda losses, outputs: losses * torch.nan)
nan_gradients = _losing(lambda losses, outputs: losses + (0 * outputs).sqrt().sum(1))
# float64 can hold them, and float32 cannot.
beyond_float32 = _losing(lambda losses, outputs: losses * 1e30 * 1e30)

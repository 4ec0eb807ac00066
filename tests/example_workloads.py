"""Workloads of a user's own, for the tests."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.layers import DPLSTM
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig


def mlp(config: ExperimentConfig) -> tuple[Any, ...]:
    """A small classifier of vectors: no tokens anywhere."""
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield torch.randn(config.batch_size, 20), torch.randint(5, (config.batch_size,))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    return model, batches(), loss


class TwoTower(nn.Module):
    """Takes two tensors by name and gives a dict: nothing like a batch of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 4, 3)
        self.tabular = nn.Linear(6, 4)

    def forward(self, image: Tensor, tabular: Tensor) -> dict[str, Tensor]:
        return {"score": self.image(image).mean(dim=(2, 3)) * self.tabular(tabular)}


def two_tower(config: ExperimentConfig) -> tuple[Any, ...]:
    """Inputs as a dict, outputs as a dict, a regression target."""

    def batches() -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        while True:
            inputs = {
                "image": torch.randn(config.batch_size, 3, 8, 8),
                "tabular": torch.randn(config.batch_size, 6),
            }
            yield inputs, torch.randn(config.batch_size, 4)

    def loss(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        squared: Tensor = (outputs["score"] - targets) ** 2
        return squared.mean(dim=1)

    return TwoTower(), batches(), loss


class Recurrent(nn.Module):
    """A classifier of token sequences by Opacus's LSTM, whose layers it can hook."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = DPLSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(ids))
        scores: Tensor = self.head(hidden[:, -1])
        return scores


def dp_lstm(config: ExperimentConfig) -> tuple[Any, ...]:
    """Token sequences of `seq_len` into five classes."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield (
                torch.randint(50, (config.batch_size, config.seq_len)),
                torch.randint(5, (config.batch_size,)),
            )

    return Recurrent(), batches(), per_sample_cross_entropy


def per_sample_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Widening(nn.Module):
    """Its output is large, and what forward makes on the way to it larger: the peak is in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(20, 5)

    def forward(self, vectors: Tensor) -> Tensor:
        with torch.no_grad():
            torch.ones(len(vectors), 60_000).exp().sum()
        scores: Tensor = self.narrow(vectors).repeat(1, 4_000)
        return scores


def wide_outputs(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP's vectors into an output whose first five columns count."""
    _, batches, _ = mlp(config)
    return Widening(), batches, lambda outputs, targets: per_sample_cross_entropy(outputs[:, :5], targets)


class Shift(nn.Module):
    """Adds a buffer, and trains nothing."""

    by: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.ones(1))

    def forward(self, values: Tensor) -> Tensor:
        return values + self.by


def with_buffer(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a buffer behind it."""
    model, batches, loss = mlp(config)
    return nn.Sequential(model, Shift()), batches, loss


def averaged_loss(config: ExperimentConfig) -> tuple[Any, ...]:
    """Breaks the contract: its loss is averaged over the batch already."""
    model, batches, loss = mlp(config)
    return model, batches, lambda outputs, targets: loss(outputs, targets).mean()


def unlucky(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, but by batch size: 3 is killed in mid-step, 5 runs out of memory, 6 crashes, 7 hangs."""
    model, batches, loss = mlp(config)
    calls = 0

    def unlucky_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == (2 if config.is_estimate else 3):  # an estimate takes two steps
            _strike(config.batch_size)
        losses: Tensor = loss(outputs, targets)
        return losses

    return model, batches, unlucky_loss


_models_built = 0


def _strike(batch_size: int) -> None:
    if batch_size == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if batch_size == 5:
        limit = 64 * 2**30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        torch.empty(2 * limit, dtype=torch.uint8)
    if batch_size == 6:
        raise RuntimeError("a fault in the workload <script>alert(1)</script>")
    if batch_size == 7:
        signal.pause()


def dies_in_trace(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, killed when the fourth pass builds it."""
    global _models_built
    _models_built += 1
    if _models_built == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return mlp(config)


def fails_in_memory_pass(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, with an error when the second pass builds it."""
    global _models_built
    _models_built += 1
    if _models_built == 2:
        raise RuntimeError("cannot build it twice")
    return mlp(config)


def with_batch_norm(config: ExperimentConfig) -> tuple[Any, ...]:
    """A model that Opacus refuses."""
    _, batches, loss = mlp(config)
    return nn.Sequential(nn.Linear(20, 5), nn.BatchNorm1d(5)), batches, loss


def picks_by_data(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss over the samples that it likes: how many there are depends on data."""
    model, batches, loss = mlp(config)

    def picking_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        liked = outputs[outputs[:, 0] > 0]
        losses: Tensor = loss(outputs, targets) + 0 * liked.sum()
        return losses

    return model, batches, picking_loss


def hoards(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss that keeps all outputs so far."""
    model, batches, loss = mlp(config)
    kept: list[Tensor] = []

    def hoarding_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        kept.append(outputs.detach().clone())
        losses: Tensor = loss(outputs, targets)
        return losses

    return model, batches, hoarding_loss


def not_a_workload(config: ExperimentConfig) -> nn.Module:
    """Returns the model alone."""
    return nn.Linear(config.batch_size, 1)


def two_batches(config: ExperimentConfig) -> tuple[Any, ...]:
    """Its batches end."""
    model, batches, loss = mlp(config)
    return model, [next(batches) for _ in range(2)], loss


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

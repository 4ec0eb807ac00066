"""Workloads of a user's own, for the tests."""

import os
import signal
import sys
from typing import Any

import torch
from opacus.layers import DPLSTM
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig


def mlp(config: ExperimentConfig) -> tuple[Any, ...]:
    """A small classifier of vectors: no tokens anywhere."""
    model, size = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)), config.batch_size
    batches = iter(lambda: (torch.randn(size, 20), torch.randint(5, (size,))), None)
    return model, batches, per_sample_cross_entropy


def per_sample_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def speaking(config: ExperimentConfig) -> tuple[Any, ...]:
    """Prints what not every terminal can show."""
    print("± 1")
    return mlp(config)


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

    def batch() -> tuple[dict[str, Tensor], Tensor]:
        size = config.batch_size
        inputs = {"image": torch.randn(size, 3, 8, 8), "tabular": torch.randn(size, 6)}
        return inputs, torch.randn(size, 4)

    def loss(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        squared: Tensor = (outputs["score"] - targets) ** 2
        return squared.mean(dim=1)

    return TwoTower(), iter(batch, None), loss


class Recurrent(nn.Module):
    """A classifier of token sequences by Opacus's LSTM, whose layers it can hook."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = DPLSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Any:
        hidden, _ = self.lstm(self.embedding(ids))
        return self.head(hidden[:, -1])


def dp_lstm(config: ExperimentConfig) -> tuple[Any, ...]:
    """Token sequences of `seq_len` into five classes."""
    shape = (config.batch_size, config.seq_len)
    batches = iter(lambda: (torch.randint(50, shape), torch.randint(5, shape[:1])), None)
    return Recurrent(), batches, per_sample_cross_entropy


class Widening(nn.Module):
    """Its output is large, and what forward makes on the way to it larger: the peak is in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(20, 5)

    def forward(self, vectors: Tensor) -> Any:
        with torch.no_grad():
            torch.ones(len(vectors), 60_000).exp().sum()
        return self.narrow(vectors).repeat(1, 4_000)


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
    """The MLP, but by batch size: 5 runs out of memory, 7 hangs."""
    model, batches, loss = mlp(config)
    calls = 0

    def unlucky_loss(outputs: Tensor, targets: Tensor) -> Any:
        nonlocal calls
        calls += 1
        if calls == (2 if config.is_estimate else 3):  # an estimate takes two steps
            _strike(config.batch_size)
        return loss(outputs, targets)

    return model, batches, unlucky_loss


_models_built = 0


def _strike(batch_size: int) -> None:
    if batch_size == 5:
        torch.empty(2**60, dtype=torch.uint8)
    if batch_size == 7:
        signal.pause()


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

    def picking_loss(outputs: Tensor, targets: Tensor) -> Any:
        liked = outputs[outputs[:, 0] > 0]
        return loss(outputs, targets) + 0 * liked.sum()

    return model, batches, picking_loss


def hoards(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP with a loss that keeps all outputs so far."""
    model, batches, loss = mlp(config)
    kept: list[Tensor] = []

    def hoarding_loss(outputs: Tensor, targets: Tensor) -> Any:
        kept.append(outputs.detach().clone())
        return loss(outputs, targets)

    return model, batches, hoarding_loss


def not_a_workload(config: ExperimentConfig) -> nn.Module:
    """Returns the model alone."""
    return nn.Linear(config.batch_size, 1)


def two_batches(config: ExperimentConfig) -> tuple[Any, ...]:
    """Its batches end."""
    model, batches, loss = mlp(config)
    return model, [next(batches) for _ in range(2)], loss


class WithUnusedLayer(nn.Module):
    """A linear model, and a layer that its forward leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(20, 5)
        self.unused = nn.Linear(20, 5)

    def forward(self, vectors: Tensor) -> Any:
        return self.used(vectors)


def with_unused_layer(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP's vectors into a model of which half is not used."""
    _, batches, loss = mlp(config)
    return WithUnusedLayer(), batches, loss


def telling(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, from a factory that goes elsewhere and prints what its process was given."""
    print("given", sys.argv[-1], "marked", bool(os.environ.get("DPPROF_JOB")))
    os.chdir("/")
    return mlp(config)


class Converted(nn.Module):
    """A model of short weights, or of another layout, for inputs as they come."""

    def __init__(self, layers: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers, self.dtype = layers, dtype

    def forward(self, values: Tensor) -> Tensor:
        """Compute in the weights' type."""
        outputs: Tensor = self.layers(values.to(self.dtype))
        return outputs.float()


def _of_vectors(model: nn.Module, config: ExperimentConfig) -> tuple[Any, ...]:
    size = config.batch_size
    batches = iter(lambda: (torch.randn(size, 20), torch.randint(5, (size,))), None)
    return model, batches, per_sample_cross_entropy


def cast_to_bf16(config: ExperimentConfig) -> tuple[Any, ...]:
    """Weights cast after they were made."""
    model = Converted(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)), torch.bfloat16)
    return _of_vectors(model.to(torch.bfloat16), config)


def halved(config: ExperimentConfig) -> tuple[Any, ...]:
    """The same in half precision."""
    layers = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    return _of_vectors(Converted(layers, torch.float16).half(), config)


def channels_last(config: ExperimentConfig) -> tuple[Any, ...]:
    """A convolution whose weights lie as images do."""
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    size = config.batch_size
    model = Converted(layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = iter(lambda: (torch.randn(size, 3, 8, 8), torch.randint(5, (size,))), None)
    return model, batches, per_sample_cross_entropy


def adapted_by_peft(config: ExperimentConfig) -> tuple[Any, ...]:
    """A frozen model with adapters, by peft's own function."""
    import peft

    layers = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    how = peft.LoraConfig(r=2, target_modules=["0"])
    return _of_vectors(peft.get_peft_model(layers, how), config)

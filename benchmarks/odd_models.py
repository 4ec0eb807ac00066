"""Models that are no transformer, for `odd_model_errors.py`: small workloads, each with a way of its own.

Each factory takes the `ExperimentConfig`, as `workload=odd_models:NAME` asks of it with this folder on
`PYTHONPATH`. Batches are of `config.batch_size` samples and, where there is a time, `config.seq_len` steps.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.layers import DPLSTM
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig

_WIDTH, _CLASSES, _VOCABULARY = 128, 10, 5_000


def _classified(model: nn.Module, inputs: Callable[[], Any], config: ExperimentConfig) -> tuple[Any, ...]:
    """A workload whose model gives scores, shape (B, classes), for inputs that are made afresh every time."""

    def batches() -> Iterator[tuple[Any, Tensor]]:
        while True:
            yield inputs(), torch.randint(_CLASSES, (config.batch_size,))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    return model, batches(), loss


def mlp(config: ExperimentConfig) -> tuple[Any, ...]:
    """Three linear layers."""
    model = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, _CLASSES)
    )
    return _classified(model, lambda: torch.randn(config.batch_size, 256), config)


def conv_net(config: ExperimentConfig) -> tuple[Any, ...]:
    """Two-dimensional convolutions with strides, groups and group norm."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, groups=64, padding=1),
        nn.Conv2d(64, 128, 1),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, _CLASSES),
    )
    return _classified(model, lambda: torch.randn(config.batch_size, 3, 32, 32), config)


class Recurrent(nn.Module):
    """A recurrent layer over (B, T, width), and a linear layer over its last output."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, sequence: Tensor) -> Tensor:
        """Scores, shape (B, classes)."""
        outputs, _ = self.layer(sequence)
        scores: Tensor = self.head(outputs[:, -1])
        return scores


def lstm(config: ExperimentConfig) -> tuple[Any, ...]:
    """Torch's LSTM: two layers, both ways."""
    layer = nn.LSTM(_WIDTH, _WIDTH, num_layers=2, bidirectional=True, batch_first=True)
    return _sequences(Recurrent(layer, 2 * _WIDTH), config)


def dp_lstm(config: ExperimentConfig) -> tuple[Any, ...]:
    """Opacus's LSTM, made of linear layers, which knows per-sample gradients."""
    return _sequences(Recurrent(DPLSTM(_WIDTH, _WIDTH, batch_first=True), _WIDTH), config)


def gru(config: ExperimentConfig) -> tuple[Any, ...]:
    """Torch's GRU."""
    return _sequences(Recurrent(nn.GRU(_WIDTH, _WIDTH, batch_first=True), _WIDTH), config)


def _sequences(model: nn.Module, config: ExperimentConfig) -> tuple[Any, ...]:
    return _classified(model, lambda: torch.randn(config.batch_size, config.seq_len, _WIDTH), config)


def embedding_bag(config: ExperimentConfig) -> tuple[Any, ...]:
    """The mean of embeddings of `seq_len` tokens, and a linear layer."""
    model = nn.Sequential(nn.EmbeddingBag(_VOCABULARY, _WIDTH), nn.Linear(_WIDTH, _CLASSES))
    return _classified(model, lambda: torch.randint(_VOCABULARY, (config.batch_size, config.seq_len)), config)


def frozen_parts(config: ExperimentConfig) -> tuple[Any, ...]:
    """A frozen body, of which only the last layer and the head are trained."""
    model = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64), nn.Linear(64, 10)
    )
    for layer in (model[0], model[2]):
        layer.requires_grad_(False)
    return _classified(model, lambda: torch.randn(config.batch_size, 256), config)


class TwoTower(nn.Module):
    """Takes two tensors by name."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 16, 3)
        self.tabular = nn.Linear(24, 16)
        self.head = nn.Linear(16, _CLASSES)

    def forward(self, image: Tensor, tabular: Tensor) -> Tensor:
        """Scores, shape (B, classes)."""
        scores: Tensor = self.head(self.image(image).mean(dim=(2, 3)) * self.tabular(tabular))
        return scores


def dict_inputs(config: ExperimentConfig) -> tuple[Any, ...]:
    """A convolution over images beside a linear layer over a table, inputs as a dict."""

    def inputs() -> dict[str, Tensor]:
        size = config.batch_size
        return {"image": torch.randn(size, 3, 32, 32), "tabular": torch.randn(size, 24)}

    return _classified(TwoTower(), inputs, config)


def huge_parameters(config: ExperimentConfig) -> tuple[Any, ...]:
    """Nearly all of the memory in one embedding and one linear layer."""
    model = nn.Sequential(
        nn.Embedding(40_000, _WIDTH), nn.Flatten(), nn.Linear(config.seq_len * _WIDTH, 1_024),
        nn.Linear(1_024, _CLASSES),
    )  # fmt: skip
    return _classified(model, lambda: torch.randint(40_000, (config.batch_size, config.seq_len)), config)


class Growing(nn.Module):
    """Remembers the features of every batch that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(256, 512)
        self.head = nn.Linear(512, _CLASSES)
        self.seen: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores, shape (B, classes), which depend on all batches so far."""
        features = self.features(inputs).relu()
        self.seen.append(features.detach())
        scores: Tensor = self.head(features + torch.stack([seen.mean() for seen in self.seen]).mean())
        return scores


def growing_state(config: ExperimentConfig) -> tuple[Any, ...]:
    """A cache that gets an entry at every call, and never loses one."""
    return _classified(Growing(), lambda: torch.randn(config.batch_size, 256), config)

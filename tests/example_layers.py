"""Small models with every kind of layer, and how a trainer of dpprof's own trains them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.measure.trainers.reference import (
    clipped_mean,
    copied,
    global_norm,
    naive_per_sample_gradients,
    relative_error,
)
from dpprof.vocabulary.clipping import PerSampleOptions

OWN: tuple[type[PerSampleTrainer], ...] = (DPBookKeepingTrainer, DPMixedGhostTrainer)
BATCH, POSITIONS, TOKENS, WIDTH, CLASSES = 4, 7, 11, 6, 5


class Tied(nn.Module):
    """The head is the embedding, one of whose tokens is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH, padding_idx=3)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.norm(self.embedding(ids)))


class Reused(nn.Module):
    """Layers called three times, position ids of shape (1, T), norms without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(20, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.last = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        h = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]).unsqueeze(0))
        for _ in range(3):
            h = h + self.norm(torch.tanh(self.linear(self.norm(h))))
        return self.head(self.last(h))


class RawParameter(nn.Module):
    """A parameter of the model itself, which has children: no rule for any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.randn(20, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embedding(ids) + self.positions[: ids.shape[1]])


class Scale(nn.Module):
    """No rule, two outputs, and an argument that is the same for all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, *, mask: Tensor) -> tuple[Tensor, Tensor]:
        return x * self.weight * mask, x.sum(-1)


class WithoutRule(nn.Module):
    """Modules without a rule between others."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = Scale()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        h = self.linear(self.embedding(ids))
        a, b = self.scale(h, mask=torch.ones(ids.shape[1], 1, dtype=h.dtype))
        return self.head(a * b.unsqueeze(-1) + self.attention(a, a, a, need_weights=False)[0])


class Convolutions(nn.Module):
    """Of images: groups, strides, dilation, every kind of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, 8)
        self.second = nn.Conv2d(8, 6, (2, 1), dilation=(1, 2), padding="same", bias=False)
        self.third = nn.Conv2d(6, 3, 3, padding=1, padding_mode="circular")
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Any:
        h = F.relu(self.second(F.silu(self.norm(self.first(x)))))
        return self.head(self.third(h).mean((2, 3)))


class Signals(nn.Module):
    """Convolutions over one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 3, padding=2, groups=4)
        self.second = nn.Conv1d(8, CLASSES, 2)

    def forward(self, x: Tensor) -> Any:
        return self.second(F.relu(self.first(x))).mean(2)


class Frozen(Reused):
    """Two weights that do not train."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding.weight.requires_grad_(False)
        self.linear.weight.requires_grad_(False)


class Around(nn.Module):
    """A module between an embedding and a head."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(TOKENS, WIDTH), inner, nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.inner(self.embedding(ids)))


class Applied(nn.Module):
    """A function of a layer and the input."""

    def __init__(self, layer: nn.Module, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer, x)


class Scaled(nn.Module):
    """No rule: scales by a parameter of its own, and does what else a test wants before and after it."""

    def __init__(
        self, before: nn.Module | None = None, after: Callable[[Tensor], Any] = lambda scaled: scaled
    ) -> None:
        super().__init__()
        self.before, self.after = before or nn.Identity(), after
        self.weight = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: Tensor) -> Any:
        return self.after(self.before(x) * self.weight)


class TiedByReference(nn.Module):
    """The head has the embedding in a list, and a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.head = Head([self.embedding])

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embedding(ids))


class Head(nn.Module):
    """Of a list with an embedding."""

    def __init__(self, tied: list[nn.Embedding]) -> None:
        super().__init__()
        self.tied, self.bias = tied, nn.Parameter(torch.zeros(TOKENS))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.tied[0].weight, self.bias)


class Tabular(nn.Module):
    """Embeds columns of ids, shape (B,)."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(TOKENS, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        return self.head(sum(each(column) for each, column in zip(self.embeddings, ids.T, strict=True)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "tied": Tied,
    "reused": Reused,
    "raw_parameter": RawParameter,
    "without_rule": WithoutRule,
    "convolutions": Convolutions,
    "signals": Signals,
    "frozen": Frozen,
}


def batch_of(name: str, samples: int = BATCH, positions: int = POSITIONS) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a model; tokens repeat."""
    if name in ("convolutions", "signals"):
        shape = (samples, 4, 9, 7) if name == "convolutions" else (samples, 4, 9)
        return torch.randn(shape), torch.randint(0, CLASSES, (samples,))
    classes = TOKENS if name == "tied" else CLASSES
    size = (samples, positions)
    return torch.randint(0, 6, size), torch.randint(0, classes, size)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (B,)."""
    each = F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return each.view(len(targets), -1).mean(1)


def trainer_of(
    cls: type[PerSampleTrainer],
    model: nn.Module,
    options: PerSampleOptions,
    lr: float = 0.0,
    loss: Callable[[Any, Tensor], Tensor] = loss,
    **changes: Any,
) -> PerSampleTrainer:
    """A trainer of a copy of the model, by default without noise and without a change of the weights."""
    settings: dict[str, Any] = {"batch_size": BATCH, "noise_multiplier": 0.0, "max_grad_norm": 1.0} | changes
    return cls(copied(model), torch.optim.SGD, {"lr": lr}, "cpu", loss=loss, options=options, **settings)


def per_sample_gradients(model: nn.Module, batch: tuple[Tensor, Tensor]) -> list[list[Tensor]]:
    """Those of the naive loop."""
    return naive_per_sample_gradients(model, loss, batch, len(batch[1]))


def gradients(trainer: PerSampleTrainer) -> list[Tensor]:
    """Those that the last step used."""
    return [p.grad for p in trainer.parameters if p.grad is not None]


def error_of(
    cls: type[PerSampleTrainer],
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    options: PerSampleOptions,
    per_sample: list[list[Tensor]] | None = None,
) -> float:
    """Relative error of the clipped gradient against the naive loop, with half of the samples clipped."""
    per_sample = per_sample or per_sample_gradients(model, batch)
    norms = sorted(float(global_norm(gradient)) for gradient in per_sample)
    limit = 0.9 * norms[len(norms) // 2]
    reference = clipped_mean(per_sample, limit, partial(cls.clip_factors, options=options))
    trainer = trainer_of(cls, model, options, batch_size=len(norms), max_grad_norm=limit)
    trainer.profile_step(batch)
    return relative_error(gradients(trainer), reference)


def tied_by_reference(config: ExperimentConfig) -> tuple[Any, ...]:
    """The workload of `TiedByReference`."""
    return TiedByReference(), iter(lambda: batch_of("reused", config.batch_size), None), loss


def tabular(config: ExperimentConfig) -> tuple[Any, ...]:
    """The workload of `Tabular`."""
    _, batches, _ = tied_by_reference(config)
    return Tabular(), ((ids[:, :2], targets[:, 0]) for ids, targets in batches), loss

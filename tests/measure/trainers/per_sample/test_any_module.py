"""Modules without a rule: exact against the naive loop, or refused by name, with nothing lost in silence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from covering import product
from example_layers import (
    CLASSES,
    OWN,
    TOKENS,
    WIDTH,
    Applied,
    Around,
    Scaled,
    Tabular,
    TiedByReference,
    batch_of,
    error_of,
    trainer_of,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import PerSampleOptions

OPTIONS = PerSampleOptions()


class Counting(Scaled):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.calls.add_(1)


class MyLinear(nn.Linear):
    """A subclass that computes what its class does."""


class Halved(nn.Linear):
    """Computes its weight by a property."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.raw = nn.Parameter(torch.rand(WIDTH, WIDTH))
        del self._parameters["weight"]

    @property
    def weight(self) -> Tensor:
        """Half of what is trained."""
        return self.raw / 2

    @weight.setter
    def weight(self, value: Tensor) -> None:
        self.register_parameter("weight", nn.Parameter(value))


class Shared(nn.Module):
    """A layer below a module without a rule that is called by itself too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scaled = Scaled(self.linear)

    def forward(self, x: Tensor) -> Any:
        return self.scaled(torch.tanh(self.linear(x)))


class SideChannel(nn.Module):
    """Sets an attribute of a module to what a layer gave."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scaled = nn.Linear(WIDTH, WIDTH), Scaled()

    def forward(self, x: Tensor) -> Any:
        added = self.linear(x)
        self.scaled.after = lambda scaled: scaled + added
        return self.scaled(x)


class Penalty(nn.Module):
    """Keeps a loss of its own, as routers of experts do."""

    def forward(self, x: Tensor) -> Tensor:
        self.loss = x.square().mean(-1, keepdim=True)
        return x


class KeepsLoss(nn.Module):
    """Adds a loss that a module below one without a rule keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled(Penalty())

    def forward(self, x: Tensor) -> Any:
        return self.scaled(x) + self.scaled.before.loss


@dataclass
class Given:
    """What a module gives, in an object that is no container to torch."""

    scaled: Tensor


class Maps(Scaled):
    """Keeps what it has computed, for whoever wants to look at it."""

    def __init__(self, keep: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, x: Tensor) -> Any:
        scaled: Tensor = super().forward(x)
        self.kept = self.keep(scaled)
        return scaled


class Fills(Scaled):
    """Adds what it computes to a list that it is called with."""

    def forward(self, x: Tensor, added: list[Tensor]) -> Any:  # type: ignore[override]
        added.append(super().forward(x))
        return x


def filled(layer: nn.Module, x: Tensor) -> Tensor:
    added: list[Tensor] = []
    return torch.stack([layer(x, added), *added]).sum(0)


class Standardized(nn.Conv1d):
    """Weight standardisation: the class does its work elsewhere than in forward."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        return super()._conv_forward(input, weight - weight.mean(), bias)


class Attention(nn.MultiheadAttention):
    """Of one input."""

    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


def hooked() -> nn.Module:
    """Its hook runs once."""
    scaled = Scaled()
    scaled.register_forward_hook(lambda module, args, out: out * 2)
    return scaled


def without_weight(norm: nn.Module) -> nn.Module:
    """Leaves the bias alone."""
    norm.register_parameter("weight", None)
    return norm


def doubles_its_gradient(scaled: Tensor) -> Tensor:
    scaled.register_hook(lambda gradient: gradient * 2)
    return scaled


def seen_by_hook() -> nn.Module:
    """Adds what a hook on a layer below one without a rule has seen."""
    seen: list[Tensor] = []
    inner = Scaled(nn.Tanh())
    inner.before.register_forward_hook(lambda module, args, out: seen.append(out))
    return Applied(inner, lambda layer, x: layer(x) + seen.pop())


def transposed(layer: nn.Module, x: Tensor) -> Any:
    return layer(x.mT).mT


def gradient_of(layer: nn.Module, x: Tensor, *, create_graph: bool) -> Tensor:
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(point).tanh().sum(), point, create_graph=create_graph)
    return gradient


def adversarial(layer: nn.Module, x: Tensor) -> Any:
    return layer(x + gradient_of(layer, x, create_graph=False))


def penalised(layer: nn.Module, x: Tensor) -> Tensor:
    return x * gradient_of(layer, x, create_graph=True)


def deconvolution() -> nn.Module:
    return nn.ConvTranspose1d(WIDTH, WIDTH, 3, padding=1)


def bilinear() -> nn.Module:
    return nn.Bilinear(WIDTH, WIDTH, WIDTH)


def pruned(layer: nn.Module, name: str = "weight") -> nn.Module:
    made: nn.Module = prune.random_unstructured(layer, name, 0.3)
    return made


EXACT: dict[str, Callable[[], nn.Module]] = {
    "weight_norm_deconvolution": lambda: Applied(weight_norm(deconvolution()), transposed),
    "weight_norm_bilinear": lambda: Applied(weight_norm(bilinear()), lambda m, x: m(x, x)),
    "weight_norm_linear": lambda: weight_norm(nn.Linear(WIDTH, WIDTH)),
    "weight_norm_subclass": lambda: weight_norm(MyLinear(WIDTH, WIDTH)),
    "pruned_deconvolution": lambda: Applied(pruned(deconvolution()), transposed),
    "pruned_bilinear": lambda: Applied(pruned(bilinear()), lambda m, x: m(x, x)),
    "pruned_weight_and_bias": lambda: pruned(pruned(MyLinear(WIDTH, WIDTH)), "bias"),
    "parametrized_linear": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "parametrized_deconvolution": lambda: Applied(parametrizations.weight_norm(deconvolution()), transposed),
    "weight_as_property": Halved,
    "shared": Shared,
    "checkpoint": lambda: Applied(Scaled(), checkpointed),
    "detached_mask": lambda: Scaled(after=lambda t: t * (t > 0)),
    "changed_in_place_after": lambda: Applied(Scaled(), lambda layer, x: layer(x).mul_(2)),
    "dropout_of_no_unit": lambda: Scaled(nn.Dropout(1e-9)),
    "integers_beside": lambda: Applied(Scaled(after=lambda t: (t, t.argmax(-1))), lambda m, x: m(x)[0]),
    "number_beside": lambda: Applied(Scaled(after=lambda t: (t, torch.tensor(3))), lambda m, x: m(x)[0]),
    "weight_norm_of_one_number": lambda: weight_norm(MyLinear(WIDTH, WIDTH), dim=None),  # type: ignore[arg-type]
    "layer_norm_without_weight": lambda: without_weight(nn.LayerNorm(WIDTH)),
    "hook_on_a_tensor": lambda: Scaled(after=doubles_its_gradient),
    "keeps_detached": lambda: Maps(Tensor.detach),
    "keeps_unused": lambda: Maps(Tensor.clone),
    "hook_on_a_module": hooked,
    "changed_in_place_by_the_next": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
    "convolution_of_another_kind": lambda: Applied(Standardized(WIDTH, WIDTH, 3, padding=1), transposed),
    "adversarial": lambda: Applied(Scaled(), adversarial),
    "adversarial_linear": lambda: Applied(nn.Linear(WIDTH, WIDTH), adversarial),
}


@pytest.mark.parametrize(("name", "cls"), product(EXACT, OWN))
def test_it_equals_the_naive_loop(name: str, cls: type[PerSampleTrainer]) -> None:
    model = Around(EXACT[name]()).double()
    assert error_of(cls, model, batch_of("reused"), OPTIONS) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_ids_of_one_dimension_train(cls: type[PerSampleTrainer]) -> None:
    ids, targets = batch_of("reused")
    assert error_of(cls, Tabular().double(), (ids[:, :2], targets[:, 0]), OPTIONS) < 1e-10


def with_a_hook() -> nn.Module:
    """A hook of its own makes a weight of a parameter."""
    scaled, parameter = Scaled(), nn.Parameter(torch.rand(WIDTH))
    scaled.register_parameter("raw", parameter)
    del scaled.weight
    scaled.register_forward_pre_hook(lambda module, args: setattr(module, "weight", module.raw * 2))
    return scaled


def with_scalar(dropout: float) -> nn.Module:
    """Gives the mean of a batch beside its output."""
    inner = Scaled(nn.Dropout(dropout), after=lambda scaled: (scaled, scaled.mean()))
    return Applied(inner, lambda layer, x: layer(x)[0])


def past_its_module(layer: nn.Module, x: Tensor) -> Any:
    return layer(x) @ layer.weight


def without_the_batch(layer: nn.Module, x: Tensor) -> Any:
    return x + layer(torch.ones(7, WIDTH))


def in_place(layer: nn.Module, x: Tensor) -> Any:
    return layer(x * 2)


def checkpointed(layer: nn.Module, x: Tensor) -> Any:
    return checkpoint(layer, x, use_reentrant=False)


# Between an embedding and a head, and alone.
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "hook": (with_a_hook, "inner computes .* inner.raw would get no gradient"),
    "spectral": (lambda: spectral_norm(MyLinear(WIDTH, WIDTH)), "inner.weight_orig would get no"),
    "side channel": (SideChannel, "inner.scaled computes .* inner.linear.weight would get no"),
    "kept": (KeepsLoss, "inner.scaled hands out a tensor past its outputs"),
    "list": (lambda: Applied(Fills(), filled), "inner.layer changes a list or dict"),
    "object": (
        lambda: Applied(Scaled(after=Given), lambda layer, x: x + layer(x).scaled),
        "inner.layer hands out a tensor",
    ),
    "hook on a child": (seen_by_hook, "inner.layer hands out a tensor past its outputs"),
    "in place": (
        lambda: Applied(Scaled(nn.ReLU(inplace=True)), in_place),
        "inner.layer changes its argument",
    ),
    "state": (Counting, "inner changes its buffer calls in forward"),
    "spectral parametrization": (
        lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
        r"inner changes its buffer parametrizations\.weight",
    ),
    "scalar": (lambda: with_scalar(0.0), r"inner.layer gives a tensor of shape \(\), .* here 4"),
    "scalar and dropout": (lambda: with_scalar(0.5), r"inner.layer gives a tensor of shape \(\)"),
    "draws": (lambda: Scaled(after=F.dropout), "inner has no rule .*: draw by nn.Dropout"),
    "checkpoint inside": (
        lambda: Scaled(Applied(nn.Identity(), checkpointed)),
        "inner has no rule .*: build it of layers that have rules",
    ),
    "double backward": (
        lambda: Applied(nn.Linear(WIDTH, WIDTH), penalised),
        "inner.layer.* takes with create_graph=True",
    ),
    "batch norm": (lambda: nn.BatchNorm1d(7, affine=False), "inner normalises over the batch"),
    "recurrent": (lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True), "inner has no rule, and torch.func"),
    "batch second": (lambda: Attention(WIDTH, 2), "inner takes .* second dimension: set batch_first"),
    "past its module": (
        lambda: Applied(nn.Linear(WIDTH, WIDTH), past_its_module),
        r"inner\.layer\.weight is used outside the forward",
    ),
    "without the batch": (
        lambda: Applied(nn.Linear(WIDTH, WIDTH), without_the_batch),
        r"inner\.layer is called with a tensor of shape \(7, 6\)",
    ),
}
REFUSED_ALONE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "tied": (TiedByReference, "head computes .* embedding.weight would get no gradient"),
    "sparse": (lambda: nn.Embedding(TOKENS, CLASSES, sparse=True), "the model has sparse gradients"),
    "max_norm": (lambda: nn.Embedding(TOKENS, CLASSES, max_norm=1.0), "the model has max_norm"),
}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_ALONE])
@pytest.mark.parametrize("cls", OWN)
def test_what_cannot_be_exact_is_refused_by_name(cls: type[PerSampleTrainer], name: str) -> None:
    make, words = (REFUSED | REFUSED_ALONE)[name]
    model = Around(make()) if name in REFUSED else make()
    with pytest.raises(WorkloadError, match=words):
        trainer_of(cls, model, OPTIONS).profile_step(batch_of("reused"))

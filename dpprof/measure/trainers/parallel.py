"""How ranks share the training. Trainers ask an object of these what to do with the model and its gradients;
what their library does differently with several ranks, they know themselves.

This rank alone is `Alone`. `replicas.py` and `shards.py` have the other ways, whose parts of torch are
imported when they are wanted.
"""

import importlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.vocabulary.parallel import DDP, FSDP2, NONE

_WAYS = {
    NONE: "dpprof.measure.trainers.parallel:Alone",
    DDP: "dpprof.measure.trainers.replicas:Replicas",
    FSDP2: "dpprof.measure.trainers.shards:Shards",
}


class Alone:
    """One rank that shares nothing. The other ways are its subclasses.

    Args:
        device: where the model trains.
    """

    way = NONE
    rank, world_size = 0, 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def total(self, number: int) -> int:
        """A number summed over all ranks."""
        return number

    def wrapped(self, model: nn.Module) -> nn.Module:
        """What forward calls in training without privacy, which exchanges gradients in backward."""
        return self.sharded(model)

    def sharded(self, model: nn.Module) -> nn.Module:
        """The model, its parameters in shards if that is how ranks share."""
        return model

    def physical_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Surrounds forward and backward of one physical batch through what `wrapped` gave."""
        return nullcontext()

    def labelling(self, observer: Observer) -> AbstractContextManager[Any]:
        """Surrounds steps, and labels what ranks gather for an observer that follows tensors."""
        return nullcontext()

    def adding_noise(self) -> AbstractContextManager[Any]:
        """Surrounds Opacus's adding of noise."""
        return nullcontext()

    def together(self, parameters: list[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
        """Parameters in groups whose clipped sums are exchanged at once."""
        return ([parameter] for parameter in parameters)

    def base_of_sum(self, so_far: Tensor | None) -> Tensor | None:
        """What this rank's clipped sum may be added to in place, given the gradient so far."""
        return so_far

    def exchanged(
        self, sums: list[Tensor], parameters: list[nn.Parameter], so_far: list[Tensor | None]
    ) -> list[Tensor]:
        """The gradients of parameters from this rank's clipped sums: with shards, exchanged and added to the
        gradients so far.
        """
        return sums

    def begin_exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """Make gradients those of all ranks, in place; gives what this rank has to add noise to: each number
        is given on one rank. `end_exchange` brings them together again.
        """
        return gradients

    def end_exchange(self, gradients: list[Tensor]) -> None:
        """Give every rank what the others have added noise to."""


def local(tensor: Tensor) -> Tensor:
    """What lies on this rank of a tensor: itself, or a distributed tensor's shard."""
    shard: Tensor | None = getattr(tensor, "_local_tensor", None)
    return tensor if shard is None else shard


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, gathered from all ranks if it is a distributed one."""
    gather = getattr(tensor, "full_tensor", None)
    gathered: Tensor = tensor if gather is None else gather()
    return gathered


def kind_of(module: nn.Module) -> type[nn.Module]:
    """A module's class, as it was before torch's `fully_shard` put its own in front."""
    own, *others = type(module).__mro__
    found: type[nn.Module] = others[1] if others[0].__name__ == "FSDPModule" else own
    return found


def all_local(named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """What lies on this rank of named tensors."""
    return [(name, local(tensor)) for name, tensor in named]


def parallel_of(way: str, device: torch.device) -> Alone:
    """The way of that name, for this process's rank of torch's default process group."""
    module, _, name = _WAYS[way].partition(":")
    made: Alone = getattr(importlib.import_module(module), name)(device)
    return made

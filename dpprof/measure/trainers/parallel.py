"""Ways in which ranks share the training: how to treat the model and its gradients.

`replicas.py` and `shards.py` import their parts of torch only when wanted.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.vocabulary.parallel import DDP, FSDP2, NONE
from dpprof.vocabulary.registry import load

_WAYS = {
    NONE: "dpprof.measure.trainers.parallel:Alone",
    DDP: "dpprof.measure.trainers.replicas:Replicas",
    FSDP2: "dpprof.measure.trainers.shards:Shards",
}


class Alone:
    """A single rank that shares nothing; base class of the other ways."""

    way = NONE
    rank, world_size = 0, 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def total(self, number: int) -> int:
        """Sum a number over all ranks."""
        return number

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Wrap the model for training without privacy, where backward exchanges gradients."""
        return self.sharded(model)

    def sharded(self, model: nn.Module) -> nn.Module:
        """Shard the model's parameters, if ranks share them so."""
        return model

    def physical_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Surround forward and backward of one physical batch through the `wrapped` model."""
        return nullcontext()

    def labelling(self, observer: Observer) -> AbstractContextManager[Any]:
        """Label what ranks gather, for an observer that follows tensors."""
        return nullcontext()

    def adding_noise(self) -> AbstractContextManager[Any]:
        """Surround Opacus's adding of noise."""
        return nullcontext()

    def together(self, parameters: list[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
        """Group parameters whose clipped sums are exchanged at once."""
        return ([parameter] for parameter in parameters)

    def base_of_sum(self, so_far: Tensor | None) -> Tensor | None:
        """Return what this rank's clipped sum may be added to in place, given the gradient so far."""
        return so_far

    def exchanged(
        self, sums: list[Tensor], parameters: list[nn.Parameter], so_far: list[Tensor | None]
    ) -> list[Tensor]:
        """Return gradients from this rank's clipped sums; shards are exchanged and added to those so far."""
        return sums

    def over_ranks(self, count: Tensor) -> Tensor:
        """Sum a count over ranks in the same physical batch; with shards these are all ranks."""
        return count

    def refuse(self, gradients: list[Tensor]) -> None:
        """Tell the other ranks, in their next exchange, that this one makes no step."""

    def begin_exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """Average gradients over ranks in place; return those numbers that this rank alone adds noise to."""
        return gradients

    def end_exchange(self, gradients: list[Tensor]) -> None:
        """Distribute the numbers that each rank added noise to."""


class Several(Alone):
    """This process's rank of torch's default process group."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def total(self, number: int) -> int:
        """Sum a number over all ranks; all must call this."""
        numbers = torch.tensor([number], device=self.device)
        dist.all_reduce(numbers)
        return int(numbers)


def local(tensor: Tensor) -> Tensor:
    """Return a tensor's part on this rank: itself, or a distributed tensor's shard."""
    shard: Tensor | None = getattr(tensor, "_local_tensor", None)
    return tensor if shard is None else shard


def whole(tensor: Tensor) -> Tensor:
    """Return a whole tensor, gathered from all ranks if distributed."""
    gather = getattr(tensor, "full_tensor", None)
    gathered: Tensor = tensor if gather is None else gather()
    return gathered


def kind_of(module: nn.Module) -> type[nn.Module]:
    """Return a module's class, without the one that torch's `fully_shard` puts in front."""
    own, *others = type(module).__mro__
    found: type[nn.Module] = others[1] if others[0].__name__ == "FSDPModule" else own
    return found


def all_local(named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Return the local parts of named tensors."""
    return [(name, local(tensor)) for name, tensor in named]


def parallel_of(way: str, device: torch.device) -> Alone:
    """Create the parallel way of that name, for this process's rank of torch's default process group."""
    made: Alone = load(_WAYS[way])(device)
    return made

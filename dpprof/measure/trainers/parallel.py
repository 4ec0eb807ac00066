"""Ways in which ranks share the training: how to treat the model and its gradients.

`shards.py` imports its parts of torch only when wanted.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.buckets import BUCKET_BYTES, buckets
from dpprof.vocabulary.messages import REFUSED_ELSEWHERE
from dpprof.vocabulary.parallel import DDP, FAKE, FSDP2, NONE
from dpprof.vocabulary.registry import load

_WAYS = {
    NONE: "dpprof.measure.trainers.parallel:Alone",
    DDP: "dpprof.measure.trainers.parallel:Replicas",
    FSDP2: "dpprof.measure.trainers.shards:Shards",
}


# torch's DDP makes its first bucket smaller, to begin early.
_FIRST_BUCKET_BYTES = 2**20


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
        """Return the tensor to accumulate this rank's clipped sum into; None to allocate one."""
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


class Replicas(Several):
    """Data parallelism (`--parallel ddp`): each rank has the whole model, and gradients are averaged.

    Without privacy by torch's DDP in backward; else by an all-reduce in two steps, which sends the same
    bytes: between reduce-scatter and all-gather each number is on one rank, which adds its noise, so that
    each rank draws 1/N of it.
    """

    way = DDP

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Wrap the model in `DistributedDataParallel`."""
        is_fake = any(isinstance(p, FakeTensor) for p in model.parameters())
        # Without data it cannot compare shapes between ranks, or agree on the buckets' order.
        wrapped = DistributedDataParallel(model, init_sync=not is_fake)
        if is_fake or dist.get_backend() == FAKE:
            wrapped.register_comm_hook(None, _all_reduced)
        if is_fake:
            wrapped.reducer = _RebuildsItsBuckets(wrapped)  # type: ignore[assignment]
        return wrapped

    def physical_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients only with the last physical batch, as torch's tutorials do."""
        assert isinstance(model, DistributedDataParallel)
        return nullcontext() if is_last else model.no_sync()

    def begin_exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """Average this rank's piece of every gradient. Raises ValueError if a rank refused."""
        pieces = []
        for bucket in buckets(gradients, self.rank, self.world_size):
            for piece, mean in zip(bucket.pieces(), bucket.reduce_scattered(), strict=True):
                piece.copy_(mean[: len(piece)])
                pieces.append(piece)
        is_nan = next((piece for piece in pieces if len(piece)), pieces[0])[:1].isnan().any()
        is_real = not isinstance(is_nan, FakeTensor) and dist.get_backend() != FAKE
        if is_real and is_nan.cpu().numpy():
            raise ValueError(REFUSED_ELSEWHERE)
        return pieces

    def refuse(self, gradients: list[Tensor]) -> None:
        """Take part in the exchange with NaN, which no other rank's sums can be."""
        with suppress(ValueError):
            self.begin_exchange([gradient.fill_(torch.nan) for gradient in gradients])

    def end_exchange(self, gradients: list[Tensor]) -> None:
        """Gather all pieces."""
        for bucket in buckets(gradients, self.rank, self.world_size):
            bucket.all_gather()


def _all_reduced(state: None, bucket: Any) -> torch.futures.Future[Tensor]:
    """Reduce a bucket as DDP does by default, without waiting for a fake group's result.

    With a hook, DDP just copies gradients into the bucket; nothing scales them.
    """
    reduced = bucket.buffer()
    dist.all_reduce(reduced)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(reduced)
    return done


_all_reduced.__annotations__.clear()  # DDP compares them with types that torch hides


class _RebuildsItsBuckets:
    """DDP's reducer, with buckets rebuilt once the order in which gradients become ready is known."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped, self._reducer = wrapped, wrapped.reducer
        self._parameters = [p for p in wrapped.module.parameters() if p.requires_grad]
        self._ready: dict[Tensor, None] = {}
        self._hooks = [
            p.register_post_accumulate_grad_hook(lambda p: self._ready.setdefault(p))
            for p in self._parameters
        ]

    def _rebuild_buckets(self) -> bool:
        if not self._hooks or len(self._ready) < len(self._parameters):
            return False
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        name, limits = "_compute_bucket_assignment_by_size", [_FIRST_BUCKET_BYTES, BUCKET_BYTES]
        assign = getattr(dist, name)

        def in_order(tensors: list[Tensor], _: list[int], *rest: Any) -> tuple[list[Any], list[Any]]:
            indices, sizes = assign(tensors, limits, *rest)
            return indices[::-1], sizes[::-1]  # DDP turns them round

        ready, wrapped = list(self._ready), self._wrapped
        with patch.object(dist, name, in_order):
            wrapped._ddp_init_helper(ready, [False] * len(ready), {}, False)
        wrapped.register_comm_hook(None, _all_reduced)
        self._reducer, wrapped.reducer = wrapped.reducer, self
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)


def local(tensor: Tensor) -> Tensor:
    """Return a tensor's part on this rank: itself, or a distributed tensor's shard."""
    return getattr(tensor, "_local_tensor", tensor)


def whole(tensor: Tensor) -> Tensor:
    """Return a whole tensor, gathered from all ranks if distributed."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def kind_of(module: nn.Module) -> type[nn.Module]:
    """Return a module's class, without the one that torch's `fully_shard` puts in front."""
    own, *others = type(module).__mro__
    return others[1] if others[0].__name__ == "FSDPModule" else own


def all_local(named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Return the local parts of named tensors."""
    return [(name, local(tensor)) for name, tensor in named]


def parallel_of(way: str, device: torch.device) -> Alone:
    """Create the parallel way of that name, for this process's rank of torch's default process group."""
    return load(_WAYS[way])(device)

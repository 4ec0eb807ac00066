"""Data parallelism: a whole model on each rank (`--parallel ddp`)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from dpprof.measure.trainers.buckets import BUCKET_BYTES, buckets
from dpprof.measure.trainers.replaced import replaced
from dpprof.measure.trainers.several import Several
from dpprof.vocabulary.parallel import DDP, FAKE

# torch's DDP makes its first bucket smaller, so as to begin early.
_FIRST_BUCKET_BYTES = 2**20


class Replicas(Several):
    """Every rank has the model. Gradients are averaged: in backward by torch's `DistributedDataParallel`, or
    between two of the exchange's steps.

    The exchange is an all-reduce taken apart, which sends the same bytes. Between a reduce-scatter and an
    all-gather every number lies on one rank, and this adds its noise: so each draws 1/N of it.
    """

    way = DDP

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model in `DistributedDataParallel`."""
        if any(isinstance(p, FakeTensor) for p in model.parameters()):
            return _without_data(model)
        wrapped = DistributedDataParallel(model)
        if dist.get_backend() == FAKE:
            wrapped.register_comm_hook(None, _all_reduced)
        return wrapped

    def physical_batch(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Gradients are exchanged with the last one alone, as torch's tutorials do."""
        assert isinstance(model, DistributedDataParallel)
        no_sync: AbstractContextManager[Any] = model.no_sync()
        return nullcontext() if is_last else no_sync

    def begin_exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """Averages this rank's piece of every gradient."""
        pieces = []
        for bucket in buckets(gradients, self.rank, self.world_size):
            for piece, mean in zip(bucket.pieces(), bucket.reduce_scattered(), strict=True):
                piece.copy_(mean[: len(piece)])
                pieces.append(piece)
        return pieces

    def end_exchange(self, gradients: list[Tensor]) -> None:
        """Gathers all pieces."""
        for bucket in buckets(gradients, self.rank, self.world_size):
            bucket.all_gather()


def _without_data(model: nn.Module) -> nn.Module:
    """`DistributedDataParallel` over fake tensors. It reads data in three places: where it compares shapes
    between ranks, where it asks a communication for its result, and where ranks agree on the order of buckets
    after the first step. Buckets have the sizes that they have after it.
    """
    name, limits = "_compute_bucket_assignment_by_size", [_FIRST_BUCKET_BYTES, BUCKET_BYTES]
    assign = getattr(dist, name)
    with replaced(dist, name, lambda tensors, _, *rest: assign(tensors, limits, *rest)):
        wrapped: Any = DistributedDataParallel(model, init_sync=False)
    wrapped.register_comm_hook(None, _all_reduced)
    wrapped.reducer = _KeepsItsBuckets(wrapped.reducer)
    without_data: nn.Module = wrapped
    return without_data


def _all_reduced(state: None, bucket: Any) -> torch.futures.Future[Tensor]:
    """What DDP does with a bucket of its own accord. A fake group's communication has no result to give, and
    nothing is divided: DDP scales gradients as it copies them into the bucket, and with a hook just copies.
    """
    reduced = bucket.buffer()
    dist.all_reduce(reduced)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(reduced)
    return done


_all_reduced.__annotations__.clear()  # DDP compares them with types that torch hides


class _KeepsItsBuckets:
    """A reducer of DDP's that never makes its buckets anew."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def _rebuild_buckets(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

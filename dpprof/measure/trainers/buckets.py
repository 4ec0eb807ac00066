"""Buckets of gradients: a matrix with a row per rank and columns per gradient, communicated at once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

SomeTensor = TypeVar("SomeTensor", bound=Tensor)
# Size of a bucket, as in torch's DDP.
BUCKET_BYTES = 25 * 2**20
# torch 2.13 renames them and warns about the old names.
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


@dataclass
class Bucket:
    """Flat gradients of one dtype. Rank r's piece of each is its r-th `chunks` numbers."""

    gradients: list[Tensor]
    chunks: list[int]
    rank: int
    world_size: int

    @torch.no_grad()
    def reduce_scattered(self) -> list[Tensor]:
        """Return the means over ranks of this rank's pieces, padded to `chunks` numbers."""
        whole = self._new(self.world_size)
        matrix = whole.view(self.world_size, -1)
        for gradient, part in zip(self.gradients, matrix.split(self.chunks, dim=1), strict=True):
            rows, rest = divmod(gradient.numel(), part.shape[1])
            part[:rows].copy_(gradient[: rows * part.shape[1]].view(rows, -1))
            if rows < self.world_size:
                part[rows:].zero_()
                part[rows, :rest].copy_(gradient[gradient.numel() - rest :])
        mine = self._new()
        _reduce_scatter(mine, whole)
        mine.div_(self.world_size)
        return list(mine.split(self.chunks))

    @torch.no_grad()
    def all_gather(self) -> None:
        """Fill each gradient with the pieces of all ranks."""
        mine = self._new()
        for piece, part in zip(self.pieces(), mine.split(self.chunks), strict=True):
            part[: len(piece)].copy_(piece)
            part[len(piece) :].zero_()
        whole = self._new(self.world_size)
        _all_gather(whole, mine)
        matrix = whole.view(self.world_size, -1)
        for gradient, part in zip(self.gradients, matrix.split(self.chunks, dim=1), strict=True):
            rows, rest = divmod(gradient.numel(), part.shape[1])
            gradient[: rows * part.shape[1]].view(rows, -1).copy_(part[:rows])
            if rest:
                gradient[gradient.numel() - rest :].copy_(part[rows, :rest])

    def pieces(self) -> list[Tensor]:
        """Return this rank's pieces, as views of the gradients."""
        return [
            gradient[self.rank * chunk : (self.rank + 1) * chunk]
            for gradient, chunk in zip(self.gradients, self.chunks, strict=True)
        ]

    def _new(self, num_rows: int = 1) -> Tensor:
        return self.gradients[0].new_empty(num_rows * sum(self.chunks))


def together(
    tensors: Iterable[SomeTensor],
    size_of: Callable[[Tensor], int] = attrgetter("nbytes"),
    most: int = BUCKET_BYTES,
) -> Iterator[list[SomeTensor]]:
    """Group neighbouring tensors of one dtype to fill a buffer; a larger tensor comes alone."""
    some: list[SomeTensor] = []
    taken = 0
    for tensor in tensors:
        size = size_of(tensor)
        if some and (taken + size > most or tensor.dtype != some[0].dtype):
            yield some
            some, taken = [], 0
        some.append(tensor)
        taken += size
    if some:
        yield some


def buckets(gradients: Iterable[Tensor], rank: int, world_size: int) -> Iterator[Bucket]:
    """Put gradients into buckets, splitting large ones; pieces are as equal as possible. Skips empty ones."""
    filled = (g for g in gradients if g.numel())
    parts = (part for g in filled for part in flat(g).split(BUCKET_BYTES // g.element_size()))
    for some in together(parts):
        yield Bucket(some, [-(-part.numel() // world_size) for part in some], rank, world_size)


def flat(tensor: Tensor) -> Tensor:
    """View a gapless tensor as flat, in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,))

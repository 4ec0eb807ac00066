"""Gaussian noise, added in place: one pass over the gradients, through a buffer of fixed size."""

from collections.abc import Iterator

import torch
from torch import Tensor

# Numbers in the buffer: what stays in the cache of a CPU core, and enough to fill a GPU.
_BUFFER = {"cpu": 2**17, "cuda": 2**24}


@torch.no_grad()
def add_noise(gradients: list[Tensor], deviation: float) -> None:
    """Add noise of a standard deviation to every number of the gradients, independent of each other.

    Small gradients share a buffer and large ones fill it several times.
    """
    if deviation == 0:
        return
    for pieces in _filling([piece for g in gradients for piece in _pieces(g)]):
        drawn = torch.empty(sum(p.numel() for p in pieces), dtype=pieces[0].dtype, device=pieces[0].device)
        drawn.normal_(0, deviation)
        parts = drawn.split([p.numel() for p in pieces])
        torch._foreach_add_(pieces, [part.view(p.shape) for part, p in zip(parts, pieces, strict=True)])


def _size(t: Tensor) -> int:
    return _BUFFER.get(t.device.type, _BUFFER["cpu"])


def _pieces(gradient: Tensor) -> list[Tensor]:
    """Views of a gradient that each fit in the buffer; one that cannot be viewed flat stays whole."""
    if not gradient.is_contiguous():
        return [gradient]
    return list(gradient.view(-1).split(_size(gradient)))


def _filling(pieces: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbouring pieces of one type that fit in the buffer together."""
    together: list[Tensor] = []
    for piece in pieces:
        taken = sum(p.numel() for p in together)
        fits = taken + piece.numel() <= _size(piece)
        if together and not (fits and piece.dtype == together[0].dtype):
            yield together
            together = []
        together = [*together, piece]
    if together:
        yield together

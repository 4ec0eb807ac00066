"""Gaussian noise, added in place: one pass over the gradients, through a buffer of fixed size."""

from collections.abc import Iterator

import torch
from torch import Tensor

from dpprof.vocabulary.clipping import NOISE_BUFFER


@torch.no_grad()
def add_noise(gradients: list[Tensor], deviation: float, device_type: str) -> None:
    """Add noise of a standard deviation to every number of the gradients, independent of each other.

    Small gradients share a buffer and large ones fill it several times; it is as large as suits the type of
    device.
    """
    if deviation == 0:
        return
    size = NOISE_BUFFER.get(device_type, NOISE_BUFFER["cpu"])
    for pieces in _filling([piece for g in gradients for piece in _pieces(g, size)], size):
        drawn = torch.empty(sum(p.numel() for p in pieces), dtype=pieces[0].dtype, device=pieces[0].device)
        drawn.normal_(0, deviation)
        parts = drawn.split([p.numel() for p in pieces])
        torch._foreach_add_(pieces, [part.view(p.shape) for part, p in zip(parts, pieces, strict=True)])


def _pieces(gradient: Tensor, size: int) -> list[Tensor]:
    """Views of a gradient that each fit in the buffer; one that cannot be viewed flat stays whole."""
    if not gradient.is_contiguous():
        return [gradient]
    return list(gradient.view(-1).split(size))


def _filling(pieces: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Neighbouring pieces of one type that fit in the buffer together."""
    together: list[Tensor] = []
    for piece in pieces:
        taken = sum(p.numel() for p in together)
        fits = taken + piece.numel() <= size
        if together and not (fits and piece.dtype == together[0].dtype):
            yield together
            together = []
        together = [*together, piece]
    if together:
        yield together

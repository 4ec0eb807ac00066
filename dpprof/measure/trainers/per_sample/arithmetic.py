"""Sums and products over samples, the first dimension."""

import torch
from torch import Tensor

# Numbers whose squares are summed at once, and how many need not be.
_CHUNK, _SHORT = 2**12, 2**16


def wide(t: Tensor) -> Tensor:
    """In float32 at least."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def squares_of(gradients: Tensor) -> Tensor:
    """Squared L2 norms of all that follows the first dimension, shape (B,), in float32 at least.

    Long ones in two sums: torch adds up millions of squares one by one, which float32 cannot. On the CPU it
    would convert half precision inside the operator, where no ledger sees it.
    """
    dtype = torch.promote_types(gradients.dtype, torch.float32)
    flat = gradients.flatten(1) if gradients.is_cuda else wide(gradients.flatten(1))
    in_chunks = flat.shape[1] // _CHUNK * _CHUNK if flat.shape[1] > _SHORT else 0
    norms = torch.linalg.vector_norm(flat[:, in_chunks:], dim=1, dtype=dtype)
    squares: Tensor = norms.square()
    if in_chunks:
        chunks = flat[:, :in_chunks].unflatten(1, (-1, _CHUNK))
        norms = torch.linalg.vector_norm(chunks, dim=2, dtype=dtype)
        squares = squares + torch.linalg.vector_norm(norms, dim=1).square()
    return squares


def dots(one: Tensor, other: Tensor) -> Tensor:
    """Dot products of all that follows the first dimension, shape (B,)."""
    return torch.bmm(one.flatten(1).unsqueeze(1), other.flatten(1).unsqueeze(2)).flatten()


def scaled(t: Tensor, factors_B: Tensor) -> Tensor:
    """A copy, each sample times its factor; rounded once, after the product."""
    return (wide(t) * factors_B.view(-1, *[1] * (t.dim() - 1))).to(t.dtype)


def over_positions(t: Tensor, num_last: int = 1) -> Tensor:
    """Sum over what lies between the first and the last dimensions, (B, ..., *last) -> (B, *last)."""
    between = tuple(range(1, t.dim() - num_last))
    return t.sum(between) if between else t


def added(total: Tensor, onto: Tensor | None) -> Tensor:
    """The total, or what it is added to in place."""
    return total if onto is None else onto.add_(total.to(onto.dtype))

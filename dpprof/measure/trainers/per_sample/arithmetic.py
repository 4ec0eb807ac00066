"""Sums and products over samples, the first dimension."""

import torch
from torch import Tensor

# Columns from which on it pays to sum rows alone first.
_WIDE = 16


def wide(t: Tensor) -> Tensor:
    """In float32 at least."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def squares_of(gradients: Tensor) -> Tensor:
    """Squared L2 norms of all that follows the first dimension, shape (B,), in float32 at least.

    In two sums, one after the other: torch adds up millions of squares one by one, which float32 cannot.
    """
    dtype = torch.promote_types(gradients.dtype, torch.float32)
    if gradients.dim() > 2:
        is_wide = gradients.shape[-1] >= _WIDE
        rows = gradients.flatten(1, -2) if is_wide else gradients.flatten(2)
        gradients = torch.linalg.vector_norm(rows, dim=2, dtype=dtype)
    norms: Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1, dtype=dtype)
    return norms.square()


def dots(one: Tensor, other: Tensor) -> Tensor:
    """Dot products of all that follows the first dimension, shape (B,)."""
    return (one.flatten(1).unsqueeze(1) @ other.flatten(1).unsqueeze(2)).flatten()


def scaled(t: Tensor, factors_B: Tensor) -> Tensor:
    """A copy, each sample times its factor; rounded once, after the product."""
    return (t * factors_B.view(-1, *[1] * (t.dim() - 1))).to(t.dtype)


def over_positions(t: Tensor, num_last: int = 1) -> Tensor:
    """Sum over what lies between the first and the last dimensions, (B, ..., *last) -> (B, *last)."""
    between = tuple(range(1, t.dim() - num_last))
    return t.sum(between) if between else t


def added(total: Tensor, onto: Tensor | None) -> Tensor:
    """The total, or what it is added to in place."""
    return total if onto is None else onto.add_(total)

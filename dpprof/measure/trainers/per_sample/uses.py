"""Contributions of one layer call to the per-sample gradients of one parameter.

Norms and weighted sums do without per-sample gradients where that is cheaper. Shape suffixes: B samples, G
groups, T positions, M and N the sides of a weight, V rows and D columns of an embedding.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from dpprof.vocabulary.clipping import BLOCKED
from dpprof.vocabulary.norm_forms import BLOCK_BYTES, WIDEST_STRIP, LayerShape, NormCost

# Numbers whose squares are summed at once, and the length up to which that is not needed.
_CHUNK, _SHORT = 2**12, 2**16


class Use(ABC):
    """One call's part in the per-sample gradients of a parameter of shape `shape`.

    `held` is the tensor that only this use holds: the output gradient of the layer, or per-sample gradients;
    `held_category` is its category in `vocabulary.categories`.
    """

    shape: torch.Size
    held: Tensor
    held_category = "output_gradients"

    @abstractmethod
    def explicit(self) -> Tensor:
        """Return the per-sample gradients, shape (B, *shape)."""

    def squared_norms(self) -> Tensor:
        """Return the squared norms, shape (B,), in float32 at least."""
        return squares_of(self.explicit())

    @abstractmethod
    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """Return the sum of the per-sample gradients times the factors, added in place to `onto` if given."""


class PerSample(Use):
    """Per-sample gradients themselves, shape (B, *shape)."""

    held_category = "per_sample_gradients"

    def __init__(self, gradients: Tensor) -> None:
        self.held = gradients
        self.shape = gradients.shape[1:]

    @classmethod
    def joined(cls, several: "list[PerSample]") -> "PerSample":
        """Add up the gradients of several calls."""
        return cls(sum_of([use.held for use in several]))

    def explicit(self) -> Tensor:
        """Return the gradients."""
        return self.held

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """Multiply a row of factors with a matrix."""
        flat = in_rows(self.held)
        return added((factors_B.to(wide(flat).dtype) @ wide(flat)).view(self.shape), onto)


class Products(Use):
    """Gradient that is a sum of outer products over positions: `left^T right` of each sample and group.

    Args:
        left: shape (B, G, T, M).
        right: shape (B, G, T, N).
        shape: of the parameter, G x M x N numbers in this order.
    """

    def __init__(self, left: Tensor, right: Tensor, shape: torch.Size) -> None:
        self.left = self.held = left  # the output gradient
        self.right, self.shape = right, shape

    @classmethod
    def joined(cls, several: "list[Products]") -> "Products":
        """Join calls of one layer into one with all their positions."""
        left = torch.cat([products.left for products in several], dim=2)
        right = torch.cat([products.right for products in several], dim=2)
        return Products(left, right, several[0].shape)

    @property
    def sizes(self) -> LayerShape:
        """B, G, T, M, N."""
        samples, groups, positions, rows = self.left.shape
        return LayerShape(samples, groups, positions, rows, self.right.shape[-1])

    def explicit(self) -> Tensor:
        """Compute one product per sample and group."""
        return (self.left.mT @ self.right).view(-1, *self.shape)

    def squares(self, cost: NormCost) -> Tensor:
        """Squared norms by the given form, shape (B,); blocked forms hold neither T x T nor M x N numbers.

        Gram forms are `sum_ts (left left^T)_ts (right right^T)_ts` (Goodfellow 2015; Li et al. 2022).
        """
        if cost.form == BLOCKED:
            return self._blocked_gram() if cost.is_gram else self._blocked_explicit()
        if not cost.is_gram:
            return self.squared_norms()
        sides = self.left, self.right
        return _gram(*sides, *sides)

    def _blocked_gram(self) -> Tensor:
        """Multiply each strip of positions with itself and, by symmetry, twice with those before."""
        strip = self.sizes.strip_positions
        a_position = 2 * self.sizes.groups * strip * max(4, self.left.element_size())
        at_once = max(strip, BLOCK_BYTES // a_position)  # positions of one sample
        samples_at_once = max(1, at_once // self.sizes.positions)
        found = []
        for left, right in zip(
            self.left.split(samples_at_once), self.right.split(samples_at_once), strict=True
        ):
            squares = []
            for first in range(0, self.sizes.positions, strip):
                sides = [side[:, :, first : first + strip] for side in (left, right)]
                squares.append(_gram(*sides, *sides))
                for begin in range(0, first, at_once):
                    before = [side[:, :, begin : min(begin + at_once, first)] for side in (left, right)]
                    squares.append(2 * _gram(*sides, *before))
            found.append(torch.stack(squares).sum(0))
        return torch.cat(found)

    def _blocked_explicit(self) -> Tensor:
        """Take a few samples at a time, or a few rows of one whose gradient is large."""
        left, right, sizes = self.left, self.right, self.sizes
        a_row = sizes.groups * sizes.columns * left.element_size()
        samples_at_once = max(1, BLOCK_BYTES // (sizes.rows * a_row))
        rows_at_once = min(sizes.rows, max(1, BLOCK_BYTES // a_row))
        found = []
        for some, others in zip(left.split(samples_at_once), right.split(samples_at_once), strict=True):
            squares = [squares_of(part.mT @ others) for part in some.split(rows_at_once, dim=-1)]
            found.append(torch.stack(squares).sum(0))
        return torch.cat(found)

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """Compute one product over the positions of all samples."""
        left, right = self.left, self.right
        if left.shape[-1] <= right.shape[-1]:  # the smaller side is scaled
            left = scaled(left, factors_B)
        else:
            right = scaled(right, factors_B)
        left, right = (side.transpose(0, 1).flatten(1, 2) for side in (left, right))  # (G, B x T, M or N)
        if left.shape[0] == 1 and onto is not None and onto.dtype == left.dtype and onto.is_contiguous():
            onto.view(left.shape[2], right.shape[2]).addmm_(left[0].T, right[0])
            return onto
        return added((left.mT @ right).view(self.shape), onto)


class Rows(Use):
    """Gradient of an embedding: a row per position, added where its token is.

    Args:
        ids: shape (B, T).
        rows: gradients of the embedded vectors, shape (B, T, D); zero where the token is the padding.
        shape: of the weight, (V, D).
    """

    def __init__(self, ids: Tensor, rows: Tensor, shape: torch.Size) -> None:
        self.rows = self.held = rows  # the ids belong to the batch
        self.ids, self.shape = ids, shape

    @classmethod
    def joined(cls, several: "list[Rows]") -> "Rows":
        """Join calls of one embedding into one with all their positions."""
        ids = torch.cat([rows.ids for rows in several], dim=1)
        return cls(ids, torch.cat([rows.rows for rows in several], dim=1), several[0].shape)

    def _added_up(self, row_of: Tensor, num_rows: int) -> Tensor:
        """Add each position's row to the one that `row_of`, (B, T), names: (B, num_rows, D)."""
        samples = len(row_of)
        first = torch.arange(samples, device=row_of.device).unsqueeze(1) * num_rows
        rows = wide(self.rows).flatten(0, 1)
        zeros = rows.new_zeros(samples * num_rows, self.shape[1])
        return zeros.index_add_(0, (row_of + first).flatten(), rows).view(samples, num_rows, -1)

    def explicit(self) -> Tensor:
        """Add the rows to zeros."""
        return self._added_up(self.ids, self.shape[0]).to(self.rows.dtype)

    def squared_norms(self) -> Tensor:
        """Squared norms from sums over equal tokens, numbered in sorted order: neither V x D nor T x T."""
        in_order, places = self.ids.sort(dim=1, stable=True)
        number = torch.zeros_like(in_order)
        number[:, 1:] = (in_order[:, 1:] != in_order[:, :-1]).cumsum(1)
        row_of = torch.empty_like(places).scatter_(1, places, number)
        return squares_of(self._added_up(row_of, self.ids.shape[1]))

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """Sum with torch's own backward."""
        rows = scaled(self.rows, factors_B)
        total = torch.ops.aten.embedding_dense_backward(rows, self.ids, self.shape[0], -1, False)
        return added(total, onto)

    def dots_with(self, products: Products) -> Tensor:
        """Dot products with a tied linear layer's gradients, shape (B,).

        Sums `left[s, ids[t]] * (right[s] . rows[t])` over positions t of one and s of the other.
        """
        left, right = products.left.squeeze(1), products.right.squeeze(1)
        found = []
        for some, others in zip(*(side.split(WIDEST_STRIP, dim=1) for side in (left, right)), strict=True):
            taken = some.gather(2, self.ids.unsqueeze(1).expand(-1, some.shape[1], -1))
            found.append(dots(wide(taken), wide(others) @ wide(self.rows).mT))
        return torch.stack(found).sum(0)


def _gram(left: Tensor, right: Tensor, other_left: Tensor, other_right: Tensor) -> Tensor:
    """Compute in float32 at least: terms cancel, and a norm that came out too small would break privacy."""
    groups = left.shape[1]
    found = dots(_products(left, other_left), _products(right, other_right))
    return found if groups == 1 else found.view(-1, groups).sum(1)


def _products(one_BGTM: Tensor, other_BGTM: Tensor) -> Tensor:
    """Products of all positions, (B x G, T, T): like `@`, but without its many views."""
    return torch.bmm(wide(one_BGTM.flatten(0, 1)), wide(other_BGTM.flatten(0, 1)).mT)


def sum_of(tensors: list[Tensor]) -> Tensor:
    """Sum tensors, without a copy if there is only one."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(0)


def wide(t: Tensor) -> Tensor:
    """Convert half precision to float32."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def in_rows(t: Tensor) -> Tensor:
    """Flatten to one row per sample: (B, ...) -> (B, N), or (B,) -> (B, 1)."""
    return t.flatten(1) if t.dim() > 1 else t.unsqueeze(1)


def squares_of(gradients: Tensor) -> Tensor:
    """Squared L2 norms over all but the first dimension, shape (B,), in float32 at least.

    Long rows take two sums: torch adds squares one by one, too coarse in float32 for millions. On the CPU
    half precision is converted here, as no ledger sees a conversion inside the operator.
    """
    dtype = torch.promote_types(gradients.dtype, torch.float32)
    flat = in_rows(gradients) if converts_in_kernels(gradients) else wide(in_rows(gradients))
    in_chunks = flat.shape[1] // _CHUNK * _CHUNK if flat.shape[1] > _SHORT else 0
    norms = torch.linalg.vector_norm(flat[:, in_chunks:], dim=1, dtype=dtype)
    squares: Tensor = norms.square()
    if in_chunks:
        chunks = flat[:, :in_chunks].unflatten(1, (-1, _CHUNK))
        norms = torch.linalg.vector_norm(chunks, dim=2, dtype=dtype)
        squares = squares + torch.linalg.vector_norm(norms, dim=1).square()
    return squares


def converts_in_kernels(t: Tensor) -> bool:
    """Tell whether norms of half precision are taken in fp32 without a copy: by CUDA's kernels."""
    return t.is_cuda


def dots(one: Tensor, other: Tensor) -> Tensor:
    """Dot products over all but the first dimension, shape (B,)."""
    return torch.bmm(one.flatten(1).unsqueeze(1), other.flatten(1).unsqueeze(2)).flatten()


def scaled(t: Tensor, factors_B: Tensor) -> Tensor:
    """Multiply each sample by its factor; rounds once, after the product."""
    return (wide(t) * factors_B.view(-1, *[1] * (t.dim() - 1))).to(t.dtype)


def over_positions(t: Tensor, num_last: int = 1) -> Tensor:
    """Sum over the dimensions between the first and the last ones: (B, ..., *last) -> (B, *last)."""
    between = tuple(range(1, t.dim() - num_last))
    return t.sum(between) if between else t


def added(total: Tensor, onto: Tensor | None) -> Tensor:
    """Add a total to `onto` in place, if given."""
    return total if onto is None else onto.add_(total.to(onto.dtype))

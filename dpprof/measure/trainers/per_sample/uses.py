"""What one call of a layer adds to the per-sample gradients of one parameter.

A parameter's per-sample gradient is the sum over its uses. A use computes its norms and its weighted sum
over samples without the per-sample gradient where that is cheaper.

Shape suffixes: B samples, G groups, T positions, M and N the sides of a weight, V rows of an embedding, D its
columns.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from dpprof.measure.trainers.per_sample.arithmetic import added, dots, scaled, squares_of, wide
from dpprof.vocabulary.clipping import BLOCKED, GRAM
from dpprof.vocabulary.norm_forms import BLOCK_BYTES, WIDEST_STRIP, LayerShape


class Use(ABC):
    """One call's part in the per-sample gradients of a parameter of shape `shape`."""

    shape: torch.Size
    # What it holds is, in the words of `vocabulary.categories`.
    held_category = "output_gradients"

    @property
    @abstractmethod
    def held(self) -> Tensor:
        """What it alone holds: the gradient of the layer's output, or per-sample gradients."""

    @abstractmethod
    def explicit(self) -> Tensor:
        """The per-sample gradients, shape (B, *shape)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Squared norms, shape (B,), in float32 at least."""

    @abstractmethod
    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """The sum of the per-sample gradients, weighted by the factors; added in place to `onto` if that is
        given.
        """


class PerSample(Use):
    """Per-sample gradients themselves, shape (B, *shape)."""

    held_category = "per_sample_gradients"

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients
        self.shape = gradients.shape[1:]

    @property
    def held(self) -> Tensor:
        """The gradients."""
        return self.gradients

    def explicit(self) -> Tensor:
        """What it holds."""
        return self.gradients

    def squared_norms(self) -> Tensor:
        """Of what it holds."""
        return squares_of(self.gradients)

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """A row of factors times a matrix."""
        flat = self.gradients.flatten(1)
        return added((factors_B.to(wide(flat).dtype) @ wide(flat)).view(self.shape), onto)


class Products(Use):
    """A gradient that sums an outer product for each position: `left^T right` of each sample and group.

    Args:
        left: shape (B, G, T, M).
        right: shape (B, G, T, N).
        shape: of the parameter, G x M x N numbers in this order.
    """

    def __init__(self, left: Tensor, right: Tensor, shape: torch.Size) -> None:
        self.left, self.right, self.shape = left, right, shape

    @property
    def held(self) -> Tensor:
        """The side that is the output's gradient."""
        return self.left

    @classmethod
    def joined(cls, several: "list[Products]") -> "Products":
        """Calls of one layer as one call with all their positions."""
        left = torch.cat([products.left for products in several], dim=2)
        right = torch.cat([products.right for products in several], dim=2)
        return Products(left, right, several[0].shape)

    @property
    def sizes(self) -> LayerShape:
        """B, G, T, M, N."""
        samples, groups, positions, rows = self.left.shape
        return LayerShape(samples, groups, positions, rows, self.right.shape[-1])

    def explicit(self) -> Tensor:
        """One product for each sample and group."""
        return (self.left.mT @ self.right).view(-1, *self.shape)

    def squared_norms(self) -> Tensor:
        """Squared norms from the per-sample gradients, all at once."""
        return squares_of(self.explicit())

    def gram(self) -> Tensor:
        """Squared norms from two T x T matrices of each sample and group (Goodfellow 2015; Li et al. 2022):
        `sum_ts (left left^T)_ts (right right^T)_ts`.
        """
        left, right = self.left, self.right
        return _gram(left, right, left, right)

    def blocked(self) -> Tensor:
        """Squared norms, block by block of Gram matrices or of per-sample gradients, whichever is cheaper:
        memory grows neither with T x T nor with M x N.
        """
        return self._blocked_gram() if self.sizes.has_gram_blocks else self._blocked_explicit()

    def squares(self, form: str) -> Tensor:
        """Squared norms in a form, shape (B,)."""
        if form == GRAM:
            return self.gram()
        return self.blocked() if form == BLOCKED else self.squared_norms()

    def category(self, form: str) -> str:
        """What a norm of this form is made of, in the words of `vocabulary.categories`."""
        is_gram = form == GRAM or (form == BLOCKED and self.sizes.has_gram_blocks)
        return "gram_matrices" if is_gram else "per_sample_gradients"

    def _blocked_gram(self) -> Tensor:
        """Gram matrices are symmetric: of each strip of positions the products with itself, and twice those
        with the positions before.
        """
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
        """A few samples at a time; a few rows of one, where its gradient is large."""
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
        """One product over the positions of all samples."""
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
    """An embedding's gradient: a row for each position, added where its token is.

    Args:
        ids: shape (B, T).
        rows: gradients of the embedded vectors, shape (B, T, D); zero where the token is the padding.
        shape: of the weight, (V, D).
    """

    def __init__(self, ids: Tensor, rows: Tensor, shape: torch.Size) -> None:
        self.ids, self.rows, self.shape = ids, rows, shape

    @property
    def held(self) -> Tensor:
        """The rows; the ids are the batch's."""
        return self.rows

    @classmethod
    def joined(cls, several: "list[Rows]") -> "Rows":
        """Calls of one embedding as one call with all their positions."""
        ids = torch.cat([rows.ids for rows in several], dim=1)
        return cls(ids, torch.cat([rows.rows for rows in several], dim=1), several[0].shape)

    def _added_up(self, row_of: Tensor, num_rows: int) -> Tensor:
        """(B, rows, D): each position's row is added to the one that `row_of`, (B, T), names."""
        samples = len(row_of)
        first = torch.arange(samples, device=row_of.device).unsqueeze(1) * num_rows
        rows = wide(self.rows).flatten(0, 1)
        zeros = rows.new_zeros(samples * num_rows, self.shape[1])
        return zeros.index_add_(0, (row_of + first).flatten(), rows).view(samples, num_rows, -1)

    def explicit(self) -> Tensor:
        """Zeros, with the rows added."""
        return self._added_up(self.ids, self.shape[0]).to(self.rows.dtype)

    def squared_norms(self) -> Tensor:
        """From the sums of the rows of equal tokens, as many as there are positions: neither V x D nor T x T.

        In sorted order, tokens are numbered by how many others come before them.
        """
        in_order, places = self.ids.sort(dim=1, stable=True)
        number = torch.zeros_like(in_order)
        number[:, 1:] = (in_order[:, 1:] != in_order[:, :-1]).cumsum(1)
        row_of = torch.empty_like(places).scatter_(1, places, number)
        return squares_of(self._added_up(row_of, self.ids.shape[1]))

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """As torch sums them."""
        rows = scaled(self.rows, factors_B)
        total = torch.ops.aten.embedding_dense_backward(rows, self.ids, self.shape[0], -1, False)
        return added(total, onto)

    def dots_with(self, products: Products) -> Tensor:
        """Dot products with the gradients of a linear layer of the same weight, shape (B,): a head tied to an
        embedding has, for position t of one and s of the other, `left[s, ids[t]] * (right[s] . rows[t])`.
        """
        left, right = products.left.squeeze(1), products.right.squeeze(1)
        found = []
        for some, others in zip(*(side.split(WIDEST_STRIP, dim=1) for side in (left, right)), strict=True):
            taken = some.gather(2, self.ids.unsqueeze(1).expand(-1, some.shape[1], -1))
            found.append(dots(wide(taken), wide(others) @ wide(self.rows).mT))
        return torch.stack(found).sum(0)


def _gram(left: Tensor, right: Tensor, other_left: Tensor, other_right: Tensor) -> Tensor:
    """In float32 at least: the terms cancel, and a norm that came out too small would not be private."""
    groups = left.shape[1]
    found = dots(_products(left, other_left), _products(right, other_right))
    return found if groups == 1 else found.view(-1, groups).sum(1)


def _products(one_BGTM: Tensor, other_BGTM: Tensor) -> Tensor:
    """Of all positions of one with all of the other, (B x G, T, T): what `@` does, without its many views."""
    return torch.bmm(wide(one_BGTM.flatten(0, 1)), wide(other_BGTM.flatten(0, 1)).mT)

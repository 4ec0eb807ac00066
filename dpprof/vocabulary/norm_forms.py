"""The forms of a per-sample gradient norm, what each costs, and which one is the cheapest for a layer.

With B samples, T positions and a weight of M x N, one product of the forward is F = 2 B T M N FLOPs (times
the groups of a convolution). The clipped sum is such a product too, unless the per-sample gradients are kept:
then it only reads them. No form may hold more than the layer's own input and output gradient, B T (M + N)
numbers; the blocked one holds 16 MiB.
"""

import math
from dataclasses import dataclass

from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED

# What a blocked norm may hold at a time.
BLOCK_BYTES = 2**24
# Strips that Gram matrices are taken in, and how many positions a strip has at least and at most. More strips
# save FLOPs, and cost calls of small products.
_STRIPS, _NARROWEST, WIDEST_STRIP = 4, 64, 512


@dataclass(frozen=True)
class LayerShape:
    """A weight in one call: B samples, G groups, T positions and a weight of G x M x N numbers."""

    samples: int
    groups: int
    positions: int
    rows: int
    columns: int

    @property
    def forward_flops(self) -> int:
        """F, the FLOPs of the layer's forward."""
        return 2 * self.samples * self.groups * self.positions * self.rows * self.columns

    @property
    def gram_flops(self) -> int:
        """FLOPs of two T x T matrices for each sample and group."""
        return 2 * self.samples * self.groups * self.positions**2 * (self.rows + self.columns)

    @property
    def strip_positions(self) -> int:
        """Positions in a strip of Gram matrices."""
        share = math.ceil(self.positions / _STRIPS)
        return min(max(share, _NARROWEST), WIDEST_STRIP, self.positions)

    @property
    def gram_block_flops(self) -> int:
        """FLOPs of Gram matrices up to the diagonal's squares, as wide as a strip."""
        whole, rest = divmod(self.positions, self.strip_positions)
        on_diagonal = whole * self.strip_positions**2 + rest**2
        return self.samples * self.groups * (self.positions**2 + on_diagonal) * (self.rows + self.columns)

    @property
    def has_gram_blocks(self) -> bool:
        """Whether a blocked norm is cheaper by Gram matrices, which are symmetric, than by gradients."""
        return self.gram_block_flops < self.forward_flops

    @property
    def num_weights(self) -> int:
        """Numbers of the weight."""
        return self.groups * self.rows * self.columns


@dataclass(frozen=True)
class NormCost:
    """A form of a layer's norm: its FLOPs, the bytes that it holds, and the FLOPs of the clipped sum
    that follows. `is_booked` says whether that is made of what the norm's backward kept, `is_kept` whether
    these are the per-sample gradients. A frozen weight has no form.
    """

    form: str
    flops: int
    num_bytes: int
    sum_flops: int
    is_booked: bool
    is_kept: bool = False

    @property
    def total_flops(self) -> int:
        """Of the norm and the clipped sum."""
        return self.flops + self.sum_flops


def norm_costs(shape: LayerShape, element_size: int, *, keeps: bool) -> dict[str, NormCost]:
    """What each form costs; `keeps` says whether a clipped sum may use what a norm was made of."""
    product = shape.forward_flops
    gram_bytes = 2 * shape.samples * shape.groups * shape.positions**2 * max(4, element_size)
    explicit_bytes = shape.samples * shape.num_weights * element_size
    after_explicit = 2 * shape.samples * shape.num_weights if keeps else product
    in_blocks, block_bytes = product, explicit_bytes
    if shape.has_gram_blocks:
        in_blocks = shape.gram_block_flops
        block_bytes = 2 * shape.samples * shape.groups * shape.strip_positions * shape.positions
        block_bytes *= max(4, element_size)
    found = (
        NormCost(GRAM, shape.gram_flops, gram_bytes, product, keeps),
        NormCost(EXPLICIT, product, explicit_bytes, after_explicit, keeps, is_kept=keeps),
        NormCost(BLOCKED, in_blocks, min(block_bytes, BLOCK_BYTES), product, keeps),
    )
    return {cost.form: cost for cost in found}


def chosen(shape: LayerShape, form: str, element_size: int, *, keeps: bool) -> NormCost:
    """The cost of a form, or with `mixed` that of the cheapest one allowed."""
    costs = norm_costs(shape, element_size, keeps=keeps)
    if form != MIXED:
        return costs[form]
    own = shape.samples * shape.groups * shape.positions * (shape.rows + shape.columns) * element_size
    allowed = [cost for cost in costs.values() if cost.form == BLOCKED or cost.num_bytes <= own]
    return min(allowed, key=lambda cost: (cost.total_flops, cost.num_bytes))

"""Forms of a per-sample gradient norm, their costs, and the choice of the cheapest for a layer.

With B samples, T positions and an M x N weight, one product of the forward is F = 2 B T M N FLOPs (times the
groups of a convolution). The clipped sum is another such product, unless the per-sample gradients are kept:
then it only reads them. Cost is FLOPs over the device's rate plus bytes over memory bandwidth. No form may
hold more than the layer's input and output gradient, B T (M + N) numbers; the blocked one holds 16 MiB.
"""

import math
from dataclasses import dataclass

from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED

# Most bytes that a blocked norm holds at a time.
BLOCK_BYTES = 2**24
# Strips of a Gram matrix, and least and most positions of a strip. More strips save FLOPs but need more calls
# of small products.
_STRIPS, _NARROWEST, WIDEST_STRIP = 4, 64, 512


@dataclass(frozen=True)
class LayerShape:
    """Shape of one layer call: B samples, G groups, T positions and a weight of G x M x N."""

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
        """FLOPs of two T x T matrices per sample and group."""
        return 2 * self.samples * self.groups * self.positions**2 * (self.rows + self.columns)

    @property
    def strip_positions(self) -> int:
        """Positions in a strip of Gram matrices."""
        share = math.ceil(self.positions / _STRIPS)
        return min(max(share, _NARROWEST), WIDEST_STRIP, self.positions)

    @property
    def gram_block_flops(self) -> int:
        """FLOPs of Gram matrices up to the squares on the diagonal, each as wide as a strip."""
        whole, rest = divmod(self.positions, self.strip_positions)
        on_diagonal = whole * self.strip_positions**2 + rest**2
        return self.samples * self.groups * (self.positions**2 + on_diagonal) * (self.rows + self.columns)


@dataclass(frozen=True)
class Balance:
    """FLOPs per byte of memory traffic, for fp32 and shorter types, and bytes of the last cache."""

    fp32: float
    short: float
    cache_bytes: int

    def spilled(self, block: int, whole: int) -> int:
        """Return the bytes written to and read from memory; none if a block takes at most half the cache."""
        return 0 if 2 * block <= self.cache_bytes else 2 * whole


@dataclass(frozen=True)
class NormCost:
    """Cost of a norm's form in a layer: FLOPs, bytes held, and FLOPs of the clipped sum that follows.

    `is_booked` tells that the sum uses what the norm's backward kept, `is_kept` that these are the per-sample
    gradients, `is_gram` that the norm uses Gram matrices. `time` is that of norm and sum, in units of moving
    one byte. A frozen weight has no form.
    """

    form: str
    flops: int
    num_bytes: int
    sum_flops: int
    is_booked: bool
    is_kept: bool = False
    is_gram: bool = False
    time: float = 0.0


def norm_costs(
    shape: LayerShape, element_size: int, balance: Balance, *, keeps: bool, keeps_larger: bool = True
) -> dict[str, NormCost]:
    """Return the cost of each form; `keeps` tells that the clipped sum may use what the norm kept.

    Unless `keeps_larger`, per-sample gradients are only kept if they are smaller than inputs and outputs.
    """
    product, samples = shape.forward_flops, shape.samples * shape.groups
    sides = samples * shape.positions * (shape.rows + shape.columns) * element_size
    wide = max(4, element_size)  # Gram matrices are in fp32 at least
    gram_bytes = 2 * samples * shape.positions**2 * wide
    gram_block = min(BLOCK_BYTES, 2 * samples * shape.strip_positions * shape.positions * wide)
    explicit_bytes = samples * shape.rows * shape.columns * element_size
    explicit_block = min(BLOCK_BYTES, explicit_bytes)
    rate = balance.fp32 if wide == element_size else balance.short
    widened = 0 if wide == element_size else 2 * sides * wide // element_size

    def by_gram(form: str, flops: int, held: int) -> NormCost:
        moved = 2 * sides + widened + balance.spilled(held, gram_bytes)
        time = flops / balance.fp32 + product / rate + moved
        return NormCost(form, flops, held, product, keeps, is_gram=True, time=time)

    def by_gradients(form: str, held: int, *, kept: bool) -> NormCost:
        summed = 2 * samples * shape.rows * shape.columns if kept else product
        moved = sides + (explicit_bytes if kept else sides) + balance.spilled(held, explicit_bytes)
        return NormCost(form, product, held, summed, keeps, kept, time=(product + summed) / rate + moved)

    in_blocks = (
        by_gradients(BLOCKED, explicit_block, kept=False),
        by_gram(BLOCKED, shape.gram_block_flops, gram_block),
    )
    found = (
        by_gram(GRAM, shape.gram_flops, gram_bytes),
        by_gradients(EXPLICIT, explicit_bytes, kept=keeps and (keeps_larger or explicit_bytes <= sides)),
        min(in_blocks, key=lambda cost: cost.time),
    )
    return {cost.form: cost for cost in found}


def chosen(
    shape: LayerShape,
    form: str,
    element_size: int,
    balance: Balance,
    *,
    keeps: bool,
    keeps_larger: bool = True,
) -> NormCost:
    """Return the cost of a form, or with `mixed` that of the fastest form allowed."""
    costs = norm_costs(shape, element_size, balance, keeps=keeps, keeps_larger=keeps_larger)
    if form != MIXED:
        return costs[form]
    own = shape.samples * shape.groups * shape.positions * (shape.rows + shape.columns) * element_size
    allowed = [cost for cost in costs.values() if cost.form == BLOCKED or cost.num_bytes <= own]
    return min(allowed, key=lambda cost: (cost.time, cost.num_bytes))

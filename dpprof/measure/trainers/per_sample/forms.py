"""The forms of a norm, what each costs, and which one is the cheapest for a layer and a shape.

With B samples, T positions and a weight of M x N, one product of the forward is 2 B T M N FLOPs. The clipped
sum is such a product too, unless the per-sample gradients are kept: then it only reads them. No form may hold
more than the layer's own input and output gradient, B T (M + N) numbers; the blocked one holds 16 MiB.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dpprof.measure.trainers.per_sample.uses import BLOCK_BYTES, BLOCK_POSITIONS, Products
from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED


@dataclass(frozen=True)
class Choice:
    """The form of a layer's norm. `flops` are those of the norm, `bytes` what it holds, `sum_flops` those of
    the clipped sum that follows; `is_kept` says whether the per-sample gradients stay for that.
    """

    form: str
    shape: tuple[int, int, int, int, int]
    flops: int
    sum_flops: int
    bytes: int
    is_kept: bool = False
    has_gram_blocks: bool = False

    @property
    def category(self) -> str:
        """What the norm is made of, in the words of `vocabulary.categories`."""
        return "gram_matrices" if self.form == GRAM or self.has_gram_blocks else "per_sample_gradients"


def costs(products: Products, *, keeps: bool) -> dict[str, Choice]:
    """What each form would cost."""
    shape = products.sizes
    samples, groups, positions, rows, columns = shape
    product = 2 * samples * groups * positions * rows * columns
    square = 2 * samples * groups * positions**2
    explicit_bytes = samples * groups * rows * columns * products.left.element_size()
    gram_bytes = square * max(4, products.left.element_size())
    blocked_flops = product
    if products.has_gram_blocks:
        blocked_flops = samples * groups * positions * (positions + BLOCK_POSITIONS) * (rows + columns)
    return {
        GRAM: Choice(GRAM, shape, square * (rows + columns), product, gram_bytes),
        EXPLICIT: Choice(EXPLICIT, shape, product, 0 if keeps else product, explicit_bytes, is_kept=keeps),
        BLOCKED: Choice(
            BLOCKED, shape, blocked_flops, product, BLOCK_BYTES, has_gram_blocks=products.has_gram_blocks
        ),
    }


def choose(products: Products, form: str, *, keeps: bool) -> Choice:
    """The form that was asked for, or the cheapest."""
    found = costs(products, keeps=keeps)
    if form != MIXED:
        return found[form]
    own = products.num_bytes
    allowed = [choice for choice in found.values() if choice.form == BLOCKED or choice.bytes <= own]
    return min(allowed, key=lambda choice: (choice.flops + choice.sum_flops, choice.bytes))


_TAKEN: dict[str, Callable[[Products], Tensor]] = {
    GRAM: Products.gram,
    EXPLICIT: Products.squared_norms,
    BLOCKED: Products.blocked,
}


def taken(products: Products, choice: Choice) -> Tensor:
    """Squared norms in the chosen form, shape (B,)."""
    return _TAKEN[choice.form](products)

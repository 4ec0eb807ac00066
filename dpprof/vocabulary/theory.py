"""The FLOPs that each algorithm needs in theory for one layer, attention apart.

With F = 2 B T M N, the FLOPs of the forward, ordinary training needs 3 F: forward, the input's gradient,
the weight's. What is added is in each function; Bu et al. 2023, "Differentially Private Optimization on Large
Model at Small Cost", table 2, counts the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dpprof.vocabulary.clipping import MIXED, PerSampleOptions
from dpprof.vocabulary.norm_forms import LayerShape, NormCost, chosen


@dataclass(frozen=True)
class LayerCall:
    """A call of a layer: what it multiplies, and which of its gradients are needed."""

    shape: LayerShape
    element_size: int = 4
    weight_trains: bool = True
    bias_trains: bool = True
    input_has_gradient: bool = True
    is_recomputed: bool = False
    is_booked: bool = False

    def products(self, *, backwards: int = 1, of_weight: int = 1) -> int:
        """FLOPs of forward, of some backward passes, each with a recomputation if there is one, and of some
        products as large as the weight's gradient."""
        each = int(self.input_has_gradient) + int(self.is_recomputed)
        return (1 + backwards * each + of_weight * int(self.weight_trains)) * self.shape.forward_flops

    def norm(self, options: object, *, keeps: bool) -> NormCost:
        """What the chosen norm of its weight costs."""
        form = options.norm if isinstance(options, PerSampleOptions) else MIXED
        return chosen(self.shape, form, self.element_size, keeps=keeps)


# From a call and the trainer's own settings to FLOPs.
Theory = Callable[[LayerCall, object], int]


def standard(call: LayerCall, options: object) -> int:
    """3 F."""
    return call.products()


def flat(call: LayerCall, options: object) -> int:
    """4 F: autograd computes the weight's gradient, and Opacus the per-sample gradients."""
    return call.products(of_weight=2)


def fast(call: LayerCall, options: object) -> int:
    """6 F: two backward passes, and the per-sample gradients."""
    return call.products(backwards=2, of_weight=3)


def ghost(call: LayerCall, options: object) -> int:
    """5 F + 2 B T^2 (M + N), and 2 B T^2 M for a bias: two backward passes, and Gram matrices."""
    shape = call.shape
    gram = shape.gram_flops if call.weight_trains else 0
    if call.bias_trains and shape.positions > 1:
        gram += 2 * shape.samples * shape.positions**2 * shape.rows * shape.groups
    return call.products(backwards=2, of_weight=2) + gram


def mixed_ghost(call: LayerCall, options: object) -> int:
    """4 F + n, n the cheapest form of the norm: two backward passes, the weight's gradient in one of them. As
    `book_keeping` for the last layer, which the first pass books.
    """
    if call.is_booked:
        return book_keeping(call, options)
    norm = call.norm(options, keeps=False).flops if call.weight_trains else 0
    return call.products(backwards=2) + norm


def book_keeping(call: LayerCall, options: object) -> int:
    """3 F + n, or 3 F and little where the per-sample gradients are kept: the clipped sum in place of the
    weight's gradient."""
    norm = call.norm(options, keeps=True).total_flops if call.weight_trains else 0
    return call.products(of_weight=0) + norm

"""FLOPs that each algorithm needs in theory for one layer, without attention.

With F = 2 B T M N, the FLOPs of the forward, ordinary training needs 3 F: forward, gradient of the input,
gradient of the weight. Each function states its additions; Bu et al. 2023, "Differentially Private
Optimization on Large Model at Small Cost", table 2, counts the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dpprof.vocabulary.norm_forms import LayerShape


@dataclass
class LayerRow:
    """One call of a layer for one physical batch: B samples, G groups, T positions, a weight of G x M x N.

    `name` is the module's path, `weight` the name of its parameter. The first layer that trains has no
    gradient of its input. `is_recomputed` tells that a checkpoint ran its forward again in backward. `norm`
    is the form in which the trainer computed the weight's norm, with its FLOPs, its bytes and the FLOPs of
    the clipped sum; these cover all calls with the parameter and stand at the first, None where the trainer
    does not choose. `is_booked` tells that the clipped sum was made from what the norm's backward kept,
    without a second backward of the layer.
    """

    name: str
    samples: int
    groups: int
    positions: int
    rows: int
    columns: int
    element_size: int = 4
    weight: str = ""
    weight_trains: bool = True
    bias_trains: bool = True
    input_has_gradient: bool = True
    is_recomputed: bool = False
    norm: str | None = None
    norm_flops: int | None = None
    norm_bytes: int | None = None
    sum_flops: int | None = None
    is_booked: bool = False
    is_convolution: bool = False

    @property
    def shape(self) -> LayerShape:
        """Shape B, G, T, M, N."""
        return LayerShape(self.samples, self.groups, self.positions, self.rows, self.columns)

    def products(self, *, backwards: int = 1, of_weight: int = 1) -> int:
        """Return the FLOPs of forward, backwards (with any recomputation) and weight-sized products."""
        each = int(self.input_has_gradient) + int(self.is_recomputed)
        return (1 + backwards * each + of_weight * int(self.weight_trains)) * self.shape.forward_flops


Theory = Callable[[LayerRow, object], int]


def standard(call: LayerRow, options: object) -> int:
    """3 F."""
    return call.products()


def flat(call: LayerRow, options: object) -> int:
    """4 F: autograd computes the weight's gradient, Opacus the per-sample gradients."""
    return call.products(of_weight=2)


def fast(call: LayerRow, options: object) -> int:
    """6 F: two backward passes and the per-sample gradients."""
    return call.products(backwards=2, of_weight=3)


def ghost(call: LayerRow, options: object) -> int:
    """5 F + 2 B T^2 (M + N), 2 B T^2 M for a bias: two backwards, Gram matrices; convolutions as `fast`."""
    if call.is_convolution:
        return fast(call, options)
    shape = call.shape
    gram = shape.gram_flops if call.weight_trains else 0
    if call.bias_trains and shape.positions > 1:
        gram += 2 * shape.samples * shape.positions**2 * shape.rows * shape.groups
    return call.products(backwards=2, of_weight=2) + gram


def mixed_ghost(call: LayerRow, options: object) -> int:
    """4 F + n, with n for the norm: two backwards, one with the weight gradient; `book_keeping` if booked."""
    if call.is_booked:
        return book_keeping(call, options)
    return call.products(backwards=2) + (call.norm_flops or 0)


def book_keeping(call: LayerRow, options: object) -> int:
    """3 F + n, or a bit over 3 F with kept gradients: the clipped sum replaces the weight's gradient."""
    return call.products(of_weight=0) + (call.norm_flops or 0) + (call.sum_flops or 0)

"""The layers of one training step that multiply matrices, as plain data."""

from dataclasses import dataclass

from dpprof.vocabulary.norm_forms import LayerShape


@dataclass
class LayerRow:
    """One call of a layer, for one physical batch: the module's path, B samples, G groups, T positions and a
    weight of G x M x N numbers.

    `weight` is the name of its parameter. Without a gradient of its input it is the first layer that trains.
    `is_recomputed` tells that a checkpoint ran its forward again in backward. `norm` is the form in which the
    trainer took the weight's norm, with its FLOPs, its bytes, and the FLOPs of the clipped sum, all for the
    parameter's calls together, at the first of them; None where the trainer does not choose. `is_booked`
    tells that the clipped sum was made of what the norm's backward kept: no second one reached the layer.
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

    @property
    def shape(self) -> LayerShape:
        """B, G, T, M, N."""
        return LayerShape(self.samples, self.groups, self.positions, self.rows, self.columns)

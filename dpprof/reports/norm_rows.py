"""The forms in which a trainer took the norms of weights, a row for layers that are alike."""

from collections import Counter
from dataclasses import dataclass

from dpprof.record.layers import LayerRow
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class NormRow:
    """Weights with the same shape and form. GFLOP and MiB are those of one of them in one physical batch,
    with all calls that use it: of the norm, what it holds, and of the clipped sum that follows. `first` is
    the path of the first layer.
    """

    first: str
    calls: int
    positions: int
    weight: str
    form: str
    norm_gflop: float
    norm_mib: float
    sum_gflop: float

    @property
    def layers(self) -> str:
        """The layers in words."""
        return self.first if self.calls == 1 else f"{self.first} and {self.calls - 1} like it"


def norm_rows(layers: list[LayerRow]) -> list[NormRow]:
    """The rows, in the order of the first call of each; none where the trainer does not choose."""
    chosen = [row for row in layers if row.norm is not None]
    counts = Counter((row.shape, row.norm) for row in chosen)
    first: dict[object, LayerRow] = {}
    for row in chosen:
        first.setdefault((row.shape, row.norm), row)
    return [
        NormRow(
            first=row.name,
            calls=counts[row.shape, row.norm],
            positions=row.positions,
            weight=f"{row.rows} x {row.columns}" + (f", {row.groups} groups" if row.groups > 1 else ""),
            form=row.norm or "",
            norm_gflop=(row.norm_flops or 0) / 1e9,
            norm_mib=mib(row.norm_bytes or 0),
            sum_gflop=(row.sum_flops or 0) / 1e9,
        )
        for row in first.values()
    ]

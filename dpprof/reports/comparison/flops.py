"""The FLOPs that a step needs in theory beside those that were counted, side by side."""

from dataclasses import dataclass

from dpprof.figures.names import FLOPS_IN_THEORY, FLOPS_OF_LAYERS
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison

_GIGA = 1e9


@dataclass(frozen=True)
class FlopRow:
    """One cell: GFLOP of its linear layers and convolutions, counted and in theory, and the theory's ratio to
    standard training's (None without a standard run).
    """

    trainer: str
    model: str
    place: str
    counted: float
    in_theory: float
    ratio: float | None

    @property
    def off_pct(self) -> float:
        """How much more was counted than theory says."""
        return 100 * (self.counted / self.in_theory - 1)


def flop_rows(comparison: Comparison) -> list[FlopRow]:
    """The finished cells whose trainer has a formula, in order."""
    cells = [cell for cell in comparison.cells if cell.finished and cell.figures.get(FLOPS_IN_THEORY)]
    return [
        FlopRow(
            trainer=cell.trainer,
            model=comparison.model(cell).label,
            place=comparison.place_name(cell),
            counted=cell.figures[FLOPS_OF_LAYERS] / _GIGA,
            in_theory=cell.figures[FLOPS_IN_THEORY] / _GIGA,
            ratio=_ratio(cell, comparison.standard(cell)),
        )
        for cell in cells
    ]


def _ratio(cell: Cell, standard: Cell | None) -> float | None:
    of_standard = standard.figures.get(FLOPS_IN_THEORY) if standard else None
    return cell.figures[FLOPS_IN_THEORY] / of_standard if of_standard else None

"""The FLOPs that a step needs in theory beside those that were counted, side by side."""

from dataclasses import dataclass

from dpprof.figures.names import FLOPS_IN_THEORY, FLOPS_OF_LAYERS
from dpprof.reports.comparison.comparison import Comparison
from dpprof.vocabulary.trainers import STANDARD

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
    standard = {
        (comparison.model(cell).label, comparison.place_name(cell)): cell.figures[FLOPS_IN_THEORY]
        for cell in cells
        if cell.trainer == STANDARD
    }
    rows = []
    for cell in cells:
        model, place = comparison.model(cell).label, comparison.place_name(cell)
        theory, of_standard = cell.figures[FLOPS_IN_THEORY], standard.get((model, place))
        rows.append(
            FlopRow(
                trainer=cell.trainer,
                model=model,
                place=place,
                counted=cell.figures[FLOPS_OF_LAYERS] / _GIGA,
                in_theory=theory / _GIGA,
                ratio=theory / of_standard if of_standard else None,
            )
        )
    return rows

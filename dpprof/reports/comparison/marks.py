"""Words for the best and the worst DP trainer at a place, where that is clear."""

from collections.abc import Callable

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.findings.best import SAME_PEAK, Best, fastest_at, smallest_at
from dpprof.reports.comparison.intervals import step_ratio

# For each metric: the word for the best, and for the worst.
WORDS = {STEP: ("fastest", "slowest"), PEAK: ("least", "most")}


def marks(place: list[Cell], metric: str) -> list[str]:
    """For each cell of a place the word for its step time or peak; empty where it is neither best nor worst.

    A trainer gets a word only if nothing else at the place comes close: a step time has to differ by more
    than its spread.
    """
    best = {STEP: fastest_at, PEAK: smallest_at}[metric](place)
    if best is None:
        return ["" for _ in place]
    lowest, highest = WORDS[metric]
    worst = _worst(best, {STEP: _is_clearly_slower, PEAK: _is_clearly_larger}[metric])
    winner = best.winners[0] if len(best.winners) == 1 else None
    return [lowest if cell is winner else highest if cell is worst else "" for cell in place]


def _worst(best: Best, is_clear: Callable[[Cell, Cell], bool]) -> Cell | None:
    *others, last = best.cells
    return last if all(is_clear(last, other) for other in others) else None


def _is_clearly_slower(cell: Cell, other: Cell) -> bool:
    ratio = step_ratio(cell, other)
    return ratio is not None and ratio.is_clear


def _is_clearly_larger(cell: Cell, other: Cell) -> bool:
    return cell.figures[PEAK] > other.figures[PEAK] * (1 + SAME_PEAK)

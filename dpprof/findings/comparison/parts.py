"""Figures of a cell by the parts that bars stack."""

from collections.abc import Callable, Iterable

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.tables import BETWEEN
from dpprof.record.figures.names import MOVED, PEAK, STEP
from dpprof.vocabulary.colors import CATEGORY_COLORS, PHASE_COLORS, UNITEMISED_COLOR
from dpprof.vocabulary.formats import listed_first

UNITEMISED = "not itemised"


def _time_parts(cell: Cell) -> dict[str, float]:
    parts = cell.phase_ms
    rest = cell.figures[STEP] - sum(parts.values())
    return parts | {BETWEEN: rest} if rest > 0 else parts


# What splits a figure, by its metric name, and the colours of the parts in the order of stacking.
_SPLIT: dict[str, tuple[Callable[[Cell], dict[str, float]], dict[str, str]]] = {
    STEP: (_time_parts, PHASE_COLORS),
    PEAK: (lambda cell: cell.at_peak, CATEGORY_COLORS),
    MOVED: (lambda cell: cell.moved_by_phase, PHASE_COLORS),
}
DRAWN = tuple(_SPLIT)


def parts(cell: Cell, metric: str) -> dict[str, float]:
    """Return the parts of a figure in order, unlisted ones last; empty unless the cell finished."""
    total = cell.figures.get(metric) if cell.finished else None
    if not total:
        return {}
    split, colors = _SPLIT[metric]
    found = split(cell)
    drawn = listed_first((name for name, value in found.items() if value), colors)
    return {name: found[name] for name in drawn} or {UNITEMISED: total}


def length(cell: Cell, metric: str) -> float:
    """Return the end of a figure's bar, 0 without one: parts may come to more than the figure."""
    found = parts(cell, metric)
    return max(sum(found.values()), cell.figures[metric]) if found else 0.0


def legend(cells: Iterable[Cell], metric: str) -> dict[str, str]:
    """Return the colours of the parts in cells' bars, in order; a bar that is not itemised needs none."""
    found = (name for cell in cells for name in parts(cell, metric) if name != UNITEMISED)
    return {name: color_of(metric, name) for name in listed_first(found, _SPLIT[metric][1])}


def color_of(metric: str, part: str) -> str:
    """Return the colour of a figure's part."""
    return UNITEMISED_COLOR if part == UNITEMISED else _SPLIT[metric][1][part]

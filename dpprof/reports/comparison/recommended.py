"""The DP trainer that the verdict recommends, with its figures where most was trained."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.figures.names import MOVED, PEAK, RATIOS_OF_TIMES, SAMPLES, STEP, ratio_name
from dpprof.reports.comparison.cell import Cell, competing
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.choice import Choice
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import full_name, size_of

_FIGURES = {
    PEAK: "best/peak_allocated_mib",
    STEP: "best/step_ms_median",
    SAMPLES: "best/samples_per_s",
    MOVED: "best/moved_mib",
    ratio_name(PEAK): "best/peak_allocated_ratio",
    ratio_name(STEP): "best/step_ms_ratio",
    ratio_name(MOVED): "best/moved_ratio",
}


@dataclass(frozen=True)
class Recommended:
    """A trainer with its figures at one place, by metric name."""

    trainer: str
    place: str
    figures: dict[str, float]


def recommended(comparison: Comparison, findings: Iterable[Finding[object]]) -> Recommended | None:
    """The trainer of the choice; without one, the trainer with the least peak at the largest place.

    Its figures are those of the largest place where it has a peak, an undisturbed one if there is any. None
    if no DP trainer has a peak.
    """
    cells = competing(comparison.cells, PEAK)
    choice = next((found.data for found in findings if isinstance(found.data, Choice)), None)
    if choice is not None:
        cells = [cell for cell in cells if cell.trainer == (choice.fastest or choice.smallest)]
    cells = [cell for cell in cells if not comparison.is_disturbed_at(cell)] or cells
    if not cells:
        return None
    largest = max(map(size_of, cells))
    best = min((c for c in cells if size_of(c) == largest), key=lambda cell: cell.figures[PEAK])
    return Recommended(best.trainer, full_name(comparison, best), _figures(comparison, best))


def _figures(comparison: Comparison, cell: Cell) -> dict[str, float]:
    ratios = comparison.ratios(cell)
    if comparison.is_disturbed_at(cell):
        ratios = {name: ratio for name, ratio in ratios.items() if name not in RATIOS_OF_TIMES}
    known = cell.figures | ratios
    return {shown: known[name] for name, shown in _FIGURES.items() if name in known}

"""The cells of a comparison as rows: what is drawn and told of each, by model and by place."""

from dataclasses import dataclass
from typing import Any

from dpprof.figures.names import NEEDED, PEAK
from dpprof.reports.comparison.bars import MEASURES, Bar, bar, legend, scale
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.best import SAME_PEAK, Best, fastest_at, smallest_at
from dpprof.reports.comparison.intervals import step_ratio
from dpprof.reports.comparison.models import Model
from dpprof.vocabulary.formats import memory


@dataclass(frozen=True)
class Row:
    """One cell: a bar for each measure by its key, what is best and worst of it at its place, and whether an
    estimate fits.
    """

    cell: Cell
    model: Model
    bars: dict[str, Bar]
    awards: list[str]
    faults: list[str]
    held_against: str


@dataclass(frozen=True)
class PlaceRows:
    """The rows of all trainers at one place."""

    name: str
    settings: dict[str, Any]
    rows: list[Row]


@dataclass(frozen=True)
class ModelRows:
    """The places of one model, whose bars share a scale and a legend for each measure, by its key."""

    model: Model
    places: list[PlaceRows]
    scales: dict[str, float]
    legends: dict[str, list[str]]


def rows_by_model(comparison: Comparison) -> list[ModelRows]:
    """Every row, by model and by place."""
    by_model: dict[Model, list[PlaceRows]] = {}
    for place in comparison.places:
        by_model.setdefault(comparison.model(place[0]), []).append(_place(comparison, place))
    return [_model(model, places) for model, places in by_model.items()]


def _model(model: Model, places: list[PlaceRows]) -> ModelRows:
    scales, legends = {}, {}
    for measure in MEASURES:
        bars = [row.bars[measure.key] for place in places for row in place.rows]
        scales[measure.key] = scale(bars)
        legends[measure.key] = legend(bars, measure)
    return ModelRows(model, places, scales, legends)


def _place(comparison: Comparison, cells: list[Cell]) -> PlaceRows:
    fastest, smallest = fastest_at(cells), smallest_at(cells)
    bests = {"fastest": fastest, "least memory": smallest}
    worst = {"slowest": slowest_of(fastest), "most memory": largest_of(smallest)}
    rows = [
        Row(
            cell=cell,
            model=comparison.model(cell),
            bars={measure.key: bar(comparison, cell, measure) for measure in MEASURES},
            awards=[award for award, best in bests.items() if _wins_alone(cell, best)],
            faults=[fault for fault, one in worst.items() if one is cell],
            held_against=_held_against(cell),
        )
        for cell in cells
    ]
    return PlaceRows(comparison.place_name(cells[0]), cells[0].settings, rows)


def _held_against(cell: Cell) -> str:
    """What an estimated cell needs of its device, and whether it fits."""
    held = cell.held_against
    return f"needs {memory(cell.figures[NEEDED], 2)}: {held}" if held else ""


def _wins_alone(cell: Cell, best: Best | None) -> bool:
    return best is not None and len(best.winners) == 1 and best.winners[0] is cell


def slowest_of(fastest: Best | None) -> Cell | None:
    """The DP trainer that is slower than all others beyond the spread, if there is one."""
    if fastest is None:
        return None
    *others, last = fastest.cells
    ratios = [step_ratio(last, other) for other in others]
    return last if all(ratio is not None and ratio.is_clear for ratio in ratios) else None


def largest_of(smallest: Best | None) -> Cell | None:
    """The DP trainer with the highest peak, if no other has the same."""
    if smallest is None:
        return None
    *_, other, last = smallest.cells
    return last if last.figures[PEAK] > other.figures[PEAK] * (1 + SAME_PEAK) else None

"""The cells of a comparison as rows: what is drawn and told of each, by model and by place."""

from dataclasses import dataclass
from typing import Any

from dpprof.figures.names import NEEDED
from dpprof.reports.comparison.bars import MEASURES, Bar, bar, legend, scale
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.marks import WORDS, marks
from dpprof.reports.comparison.models import Model
from dpprof.vocabulary.formats import memory

_IN_FULL = {"least": "least memory", "most": "most memory"}


@dataclass(frozen=True)
class Row:
    """One cell: a bar for each measure by its key, the word for its step time and its peak by metric
    (`marks.py`), and whether an estimate fits.
    """

    cell: Cell
    model: Model
    bars: dict[str, Bar]
    marks: dict[str, str]
    held_against: str

    @property
    def awards(self) -> list[str]:
        """What it is best in, in words that stand alone."""
        return [_IN_FULL.get(mark, mark) for metric, mark in self.marks.items() if mark == WORDS[metric][0]]

    @property
    def faults(self) -> list[str]:
        """What it is worst in."""
        return [_IN_FULL.get(mark, mark) for metric, mark in self.marks.items() if mark == WORDS[metric][1]]


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
    found = {metric: marks(cells, metric) for metric in WORDS}
    rows = [
        Row(
            cell=cell,
            model=comparison.model(cell),
            bars={measure.key: bar(comparison, cell, measure) for measure in MEASURES},
            marks={metric: words[i] for metric, words in found.items()},
            held_against=_held_against(cell),
        )
        for i, cell in enumerate(cells)
    ]
    return PlaceRows(comparison.place_name(cells[0]), cells[0].settings, rows)


def _held_against(cell: Cell) -> str:
    """What an estimated cell needs of its device, and whether it fits."""
    held = cell.held_against
    return f"needs {memory(cell.figures[NEEDED], 2)}: {held}" if held else ""

"""Cells of a comparison as rows, by model and by place: bars, and words for the best and the worst."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import step_ratio
from dpprof.findings.comparison.models import Model
from dpprof.findings.tables import BETWEEN
from dpprof.findings.verdict.best import SAME_PEAK, fastest_at, smallest_at
from dpprof.record.figures.names import MOVED, PEAK, PREDICTIONS, STEP
from dpprof.vocabulary.colors import CATEGORY_COLORS, PHASE_COLORS, UNITEMISED_COLOR
from dpprof.vocabulary.formats import listed_first
from dpprof.vocabulary.grouping import grouped

# Words for the best and for the worst, by metric.
WORDS = {STEP: ("fastest", "slowest"), PEAK: ("least", "most")}


def marks(place: list[Cell], metric: str) -> list[str]:
    """Return each cell's word for its step time or peak; empty if neither best nor worst.

    A cell gets a word only if no other comes close: step times must differ by more than their spread.
    """
    best = fastest_at(place) if metric == STEP else smallest_at(place)
    if best is None:
        return ["" for _ in place]
    lowest, highest = WORDS[metric]
    *others, last = best.cells
    worst = last if all(_is_clearly_worse(last, other, metric) for other in others) else None
    winner = best.winners[0] if len(best.winners) == 1 else None
    return [lowest if cell is winner else highest if cell is worst else "" for cell in place]


def _is_clearly_worse(cell: Cell, other: Cell, metric: str) -> bool:
    if metric == PEAK:
        return cell.figures[PEAK] > other.figures[PEAK] * (1 + SAME_PEAK)
    ratio = step_ratio(cell, other)
    return ratio is not None and ratio.is_clear


UNITEMISED = "not itemised"


@dataclass(frozen=True)
class Measure:
    """A figure that is drawn as bars, split by `parts`."""

    key: str
    title: str
    unit: str
    metric: str
    parts: Callable[[Cell], dict[str, float]]
    colors: dict[str, str]

    def color(self, part: str) -> str:
        """Return the colour of a part."""
        return UNITEMISED_COLOR if part == UNITEMISED else self.colors[part]


@dataclass(frozen=True)
class CellBar:
    """One cell's figure. `parts` are stacked in order; `total` is the figure itself, None if unmeasured.

    `predicted` is an estimated step's time, its least and its most. `is_disturbed` marks a disturbed step.
    """

    parts: dict[str, float]
    total: float | None
    ratio: float | None
    predicted: tuple[float, ...] | None
    failure: str | None
    is_disturbed: bool = False

    @property
    def length(self) -> float:
        """End of the bar."""
        return max(sum(self.parts.values()), self.total or 0.0)


def _time_parts(cell: Cell) -> dict[str, float]:
    parts = cell.phase_ms
    rest = cell.figures[STEP] - sum(parts.values())
    return parts | {BETWEEN: rest} if rest > 0 else parts


MEASURES = (
    Measure("peak_memory", "peak memory", "MiB", PEAK, lambda cell: cell.at_peak, CATEGORY_COLORS),
    Measure("step_time", "step time", "ms", STEP, _time_parts, PHASE_COLORS),
    Measure("bytes_moved", "bytes moved", "MiB", MOVED, lambda cell: cell.moved_by_phase, PHASE_COLORS),
)


def bar(comparison: Comparison, cell: Cell, measure: Measure) -> CellBar:
    """Return the bar of one cell. Parts follow the order of the measure's colours, unlisted ones last."""
    total = cell.figures.get(measure.metric) if cell.finished else None
    parts = {}
    if total is not None:
        found = measure.parts(cell)
        drawn = listed_first((name for name, value in found.items() if value), measure.colors)
        parts = {name: found[name] for name in drawn} or {UNITEMISED: total}
    named = PREDICTIONS if measure.metric == STEP else ()
    return CellBar(
        parts=parts,
        total=total,
        ratio=comparison.ratio(cell, measure.metric),
        predicted=tuple(cell.figures[name] for name in named if name in cell.figures) or None,
        failure=None if cell.finished else cell.failure or cell.status.lower(),
        is_disturbed=measure.metric == STEP and comparison.is_disturbed_at(cell),
    )


def legend(bars: list[CellBar], measure: Measure) -> list[str]:
    """Return the names of the parts in the bars, in order; a bar that is not itemised needs none."""
    found = (name for bar in bars for name in bar.parts if name != UNITEMISED)
    return listed_first(found, measure.colors)


@dataclass(frozen=True)
class CellRow:
    """One cell: bars by measure, and words for its step time and peak by metric."""

    cell: Cell
    model: Model
    bars: dict[str, CellBar]
    marks: dict[str, str]


@dataclass(frozen=True)
class PlaceRows:
    """The rows of all trainers at one place."""

    name: str
    settings: dict[str, Any]
    rows: list[CellRow]


@dataclass(frozen=True)
class ModelRows:
    """The places of one model, whose bars share a scale and a legend for each measure, by its key."""

    model: Model
    places: list[PlaceRows]
    scales: dict[str, float]
    legends: dict[str, list[str]]


def rows_by_model(comparison: Comparison) -> list[ModelRows]:
    """Return every row, by model and by place."""
    by_model = grouped(comparison.places, lambda place: comparison.model(place[0]))
    return [_model(model, [_place(comparison, p) for p in places]) for model, places in by_model.items()]


def _model(model: Model, places: list[PlaceRows]) -> ModelRows:
    scales, legends = {}, {}
    for measure in MEASURES:
        bars = [row.bars[measure.key] for place in places for row in place.rows]
        scales[measure.key] = max((bar.length for bar in bars), default=0.0) or 1.0
        legends[measure.key] = legend(bars, measure)
    return ModelRows(model, places, scales, legends)


def _place(comparison: Comparison, cells: list[Cell]) -> PlaceRows:
    found = {metric: marks(cells, metric) for metric in WORDS}
    rows = [
        CellRow(
            cell=cell,
            model=comparison.model(cell),
            bars={measure.key: bar(comparison, cell, measure) for measure in MEASURES},
            marks={metric: words[i] for metric, words in found.items()},
        )
        for i, cell in enumerate(cells)
    ]
    return PlaceRows(comparison.place_name(cells[0]), cells[0].settings, rows)

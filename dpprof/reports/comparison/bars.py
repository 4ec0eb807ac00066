"""The stacked bars of a comparison, as plain data: peak memory, step time and bytes moved of every cell."""

from collections.abc import Callable
from dataclasses import dataclass

from dpprof.figures.names import FLOOR, IQR, MOVED, PEAK, STEP
from dpprof.reports.colors import CATEGORY_COLORS, PHASE_COLORS, UNITEMISED_COLOR
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.tables import BETWEEN
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.trainers import UNLISTED_COLOR

UNITEMISED = "not itemised"
# A limit further away than this, in times the longest bar, would leave nothing to see of the bars.
_FARTHEST_LIMIT = 3.0


@dataclass(frozen=True)
class Measure:
    """A figure that is drawn as bars. `parts` gives what it is made of."""

    key: str
    title: str
    unit: str
    metric: str
    parts: Callable[[Cell], dict[str, float]]
    colors: dict[str, str]

    def color(self, part: str) -> str:
        """The colour of a part."""
        return UNITEMISED_COLOR if part == UNITEMISED else self.colors.get(part, UNLISTED_COLOR)


@dataclass(frozen=True)
class Bar:
    """One cell's figure. `parts` are stacked in order; `total` is the figure itself, None if unmeasured.

    `spread` is half the interquartile range, `floor` the least that an estimated step can take. An experiment
    that ran out of memory has the device's memory as `limit`; `failure` says how a cell failed.
    `is_disturbed` marks a step time that does not compare because a cell at its place was disturbed.
    """

    cell: Cell
    parts: dict[str, float]
    total: float | None
    ratio: float | None
    spread: float | None
    floor: float | None
    failure: str | None
    limit: float | None
    is_disturbed: bool = False

    @property
    def length(self) -> float:
        """Where the bar ends, its limit left out."""
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


def bar(comparison: Comparison, cell: Cell, measure: Measure) -> Bar:
    """The bar of one cell. Parts come in the order of the measure's colours, unlisted ones last."""
    total = cell.figures.get(measure.metric) if cell.finished else None
    parts = {}
    if total is not None:
        found = measure.parts(cell)
        drawn = listed_first((name for name, value in found.items() if value), measure.colors)
        parts = {name: found[name] for name in drawn} or {UNITEMISED: total}
    spread = cell.figures.get(IQR) if measure.metric == STEP and total is not None else None
    return Bar(
        cell=cell,
        parts=parts,
        total=total,
        ratio=comparison.ratio(cell, measure.metric),
        spread=None if spread is None else spread / 2,
        floor=cell.figures.get(FLOOR) if measure.metric == STEP else None,
        failure=None if cell.finished else cell.failure or cell.status.lower(),
        limit=cell.limit_mib if measure.metric == PEAK and cell.failure == "oom" else None,
        is_disturbed=measure.metric == STEP and comparison.is_disturbed_at(cell),
    )


def scale(bars: list[Bar]) -> float:
    """What the full width stands for: the longest bar, or the limit that one of them ran into."""
    longest = max((bar.length for bar in bars), default=0.0)
    limits = [bar.limit for bar in bars if bar.limit is not None]
    near = [limit for limit in limits if not longest or limit <= _FARTHEST_LIMIT * longest]
    return max([longest, *near]) or 1.0


def legend(bars: list[Bar], measure: Measure) -> list[str]:
    """The names of the parts that some bars have, in order; a bar that is not itemised needs none."""
    found = (name for bar in bars for name in bar.parts if name != UNITEMISED)
    return listed_first(found, measure.colors)

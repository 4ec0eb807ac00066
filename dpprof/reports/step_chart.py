"""The stacked chart of a step as plain data for inline SVG, for where no script runs and for print."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.reports.colors import category_color
from dpprof.reports.levels import Levels
from dpprof.reports.svg import Scale, tick

WIDTH, HEIGHT = 2000, 800
_HEADROOM = 1.2


@dataclass(frozen=True)
class Area:
    """A category's area as an SVG path from the axis up: the next one is drawn over it."""

    category: str
    color: str
    path: str


@dataclass(frozen=True)
class Mark:
    """Something at a place along an axis, in percent of its length."""

    text: str
    pct: float


@dataclass(frozen=True)
class Band:
    """A phase, from `pct` on, `width_pct` wide."""

    text: str
    pct: float
    width_pct: float


@dataclass(frozen=True)
class StepChart:
    """Areas from the topmost down, ticks in ms and MiB, phases, and the peak's place."""

    areas: list[Area]
    x_ticks: list[Mark]
    y_ticks: list[Mark]
    bands: list[Band]
    peak_x_pct: float
    peak_y_pct: float


def compute(levels: Levels) -> StepChart:
    """The chart of some levels."""
    end = levels.ms[-1] or 1.0
    top = _HEADROOM * max(levels.total_mib) or 1.0
    so_far = [0.0] * len(levels.ms)
    areas = []
    x = [round(WIDTH * ms / end) for ms in levels.ms]
    for category, alive in levels.mib.items():
        so_far = [below + mib for below, mib in zip(so_far, alive, strict=True)]
        y = [round(HEIGHT * (1 - mib / top)) for mib in so_far]
        areas.append(Area(category, category_color(category), _steps(x, y)))
    return StepChart(
        areas=areas[::-1],
        x_ticks=_ticks(end),
        y_ticks=_ticks(top),
        bands=[
            Band(span.name, 100 * span.start_ms / end, 100 * (span.end_ms - span.start_ms) / end)
            for span in levels.spans
        ],
        peak_x_pct=100 * levels.ms[levels.peak_index] / end,
        peak_y_pct=100 * levels.total_mib[levels.peak_index] / top,
    )


def _steps(x: Iterable[int], y: Iterable[int]) -> str:
    """A path along steps: each level holds until the next. Of equal ones only the first is written."""
    parts = [f"M0 {HEIGHT}"]
    at, level = 0, HEIGHT
    for next_x, next_y in zip(x, y, strict=True):
        if next_y == level:
            continue
        if next_x != at:
            parts.append(f"H{next_x}")
        parts.append(f"V{next_y}")
        at, level = next_x, next_y
    return "".join([*parts, f"H{WIDTH}V{HEIGHT}Z"])


def _ticks(end: float) -> list[Mark]:
    scale = Scale(0.0, end, 0.0, 100.0)
    return [Mark(tick(value), scale.at(value)) for value in scale.ticks()]

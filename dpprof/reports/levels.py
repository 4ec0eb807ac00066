"""The bytes of each category over a step, as curves that can be drawn: few points, every peak among them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpprof.record.ledger import PhaseMark, StepTimeline
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.units import MIB, MS_PER_S, mib

_MAX_POINTS = 4000


@dataclass(frozen=True)
class Span:
    """One occurrence of a phase, in ms from the step's start."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Levels:
    """Stacked curves: `mib[category][i]` holds from `ms[i]` to `ms[i + 1]`.

    Of `num_recorded` levels some may be left out: those between peaks and troughs, and peaks that rise less
    than `tolerance_mib` above the troughs beside them.
    """

    ms: list[float]
    mib: dict[str, list[float]]
    total_mib: list[float]
    spans: list[Span]
    num_recorded: int
    tolerance_mib: float
    peak_index: int


def compute(timeline: StepTimeline, phase_s: dict[str, float], most: int = _MAX_POINTS) -> Levels:
    """The curves of a step's timeline.

    `phase_s` gives how long each phase takes when nothing watches; each phase is drawn that wide. A phase
    that is not in it is as wide as it was under the ledger. What happens between phases, where the ledger
    itself is at work, is drawn as a moment.
    """
    found = (*timeline.start, *timeline.category, *filter(None, timeline.moved_to))
    categories = listed_first(found, CATEGORIES)
    column = {category: i for i, category in enumerate(categories)}
    changes = np.zeros((len(timeline.seconds) + 1, len(categories)), dtype=np.int64)
    for category, num_bytes in timeline.start.items():
        changes[0, column[category]] = num_bytes
    rows = zip(timeline.category, timeline.num_bytes, timeline.moved_to, strict=True)
    for i, (category, num_bytes, moved_to) in enumerate(rows, start=1):
        if moved_to is None:
            changes[i, column[category]] += num_bytes
        else:
            changes[i, column[category]] -= num_bytes
            changes[i, column[moved_to]] += num_bytes
    levels = changes.cumsum(axis=0)
    total = levels.sum(axis=1)
    peak = timeline.peak_event + 1
    bounds = {i for phase in timeline.phases for i in (phase.first_event, phase.end_event)}
    kept, tolerance = _thin(total.tolist(), {0, len(total) - 1, peak, *bounds}, most)
    ms, spans = clock(timeline, phase_s)
    kept_levels = levels[[*kept, kept[-1]]] / MIB
    return Levels(
        ms=[ms[i] for i in [*kept, -1]],
        mib={c: kept_levels[:, i].tolist() for c, i in column.items() if kept_levels[:, i].any()},
        total_mib=kept_levels.sum(axis=1).tolist(),
        spans=spans,
        num_recorded=len(total),
        tolerance_mib=mib(tolerance),
        peak_index=kept.index(peak),
    )


def clock(timeline: StepTimeline, phase_s: dict[str, float]) -> tuple[list[float], list[Span]]:
    """When the step starts, each of its events happens and it ends, and its phases, all in ms as drawn.

    `phase_s` is as `compute` has it.
    """
    knots, drawn = _stretch(timeline.phases, timeline.step_s, phase_s)
    ms = MS_PER_S * np.interp([0.0, *timeline.seconds, timeline.step_s], knots, drawn)
    spans = [
        Span(p.name, *(MS_PER_S * np.interp([p.start, p.end], knots, drawn)).tolist())
        for p in timeline.phases
    ]
    return ms.tolist(), spans


def _thin(total: list[int], needed: set[int], most: int) -> tuple[list[int], float]:
    """Indices to draw, and the rise below which a peak may be missing: 0 unless there are too many peaks.

    Peaks and troughs take up to half of the points; the rest is spread evenly between them.
    """
    if len(total) <= most:
        return list(range(len(total))), 0.0
    tolerance = 0.0
    while len(turning := turning_points(total, tolerance)) > most // 2:
        tolerance = 2 * tolerance or max(total) / 2**16
    return sorted({*needed, *turning, *range(0, len(total), -(-2 * len(total) // most))}), tolerance


def turning_points(values: Sequence[float], tolerance: float) -> list[int]:
    """Indices of the peaks and troughs of a curve that differ from their neighbours by more than `tolerance`.

    With a tolerance of 0 these are all local peaks and troughs; of a plateau the first point.
    """
    found = []
    high = low = 0
    direction = 0
    for i, value in enumerate(values):
        if value > values[high]:
            high = i
        if value < values[low]:
            low = i
        if direction >= 0 and values[high] - value > tolerance:
            found.append(high)
            direction, low = -1, i
            high = i
        elif direction <= 0 and value - values[low] > tolerance:
            found.append(low)
            direction, high = 1, i
            low = i
    return found


def _stretch(
    phases: list[PhaseMark], step_s: float, phase_s: dict[str, float]
) -> tuple[list[float], list[float]]:
    """Knots of a piecewise linear clock: seconds under the ledger, and seconds as drawn."""
    under_ledger: dict[str, float] = {}
    for phase in phases:
        under_ledger[phase.name] = under_ledger.get(phase.name, 0.0) + phase.end - phase.start
    knots, widths = [0.0], []
    for phase in sorted(phases, key=lambda p: p.start):
        factor = 1.0
        if phase.name in phase_s and under_ledger[phase.name] > 0:
            factor = phase_s[phase.name] / under_ledger[phase.name]
        widths += [0.0, factor * (phase.end - phase.start)]
        knots += [phase.start, phase.end]
    return [*knots, step_s], [0.0, *itertools.accumulate([*widths, 0.0])]

"""Bytes of each category over a step, as curves to draw: few points that keep the peaks."""

import itertools
from dataclasses import dataclass

import numpy as np

from dpprof.record.ledger import PhaseMark, StepTimeline
from dpprof.vocabulary.grouping import summed
from dpprof.vocabulary.units import MIB, MS_PER_S

_MOST_POINTS = 800


@dataclass(frozen=True)
class Span:
    """One occurrence of a phase, in ms from the step's start."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Levels:
    """Stacked curves: `mib[category][i]` holds from `ms[i]` to `ms[i + 1]`."""

    ms: list[float]
    mib: dict[str, list[float]]
    total_mib: list[float]
    spans: list[Span]
    peak_index: int


def compute(timeline: StepTimeline, phase_s: dict[str, float], most: int = _MOST_POINTS) -> Levels:
    """Return the curves of a step's timeline.

    `phase_s` is how long each phase takes without the ledger, and sets its width; other phases keep their
    width under the ledger. Time between phases, where the ledger itself is at work, has no width.
    """
    categories = timeline.categories
    column = {category: i for i, category in enumerate(categories)}
    changes = np.zeros((len(timeline.seconds) + 1, len(categories)), dtype=np.int64)
    for category, num_bytes in timeline.start.items():
        changes[0, column[category]] = num_bytes
    for i, changed in enumerate(timeline.changes(), start=1):
        for category, num_bytes in changed:
            changes[i, column[category]] += num_bytes
    levels = changes.cumsum(axis=0)
    total = levels.sum(axis=1)
    peak = timeline.peak_event + 1
    bounds = {i for phase in timeline.phases for i in (phase.first_event, phase.end_event)}
    kept = _drawn(total, {0, len(total) - 1, peak, *bounds}, most)
    ms, spans = clock(timeline, phase_s)
    kept_levels = levels[[*kept, kept[-1]]] / MIB
    return Levels(
        ms=[ms[i] for i in [*kept, -1]],
        mib={c: kept_levels[:, i].tolist() for c, i in column.items() if kept_levels[:, i].any()},
        total_mib=kept_levels.sum(axis=1).tolist(),
        spans=spans,
        peak_index=kept.index(peak),
    )


def clock(timeline: StepTimeline, phase_s: dict[str, float]) -> tuple[list[float], list[Span]]:
    """Return the times of the step's start, its events and its end, and its phases, in ms as drawn."""
    knots, drawn = _stretch(timeline.phases, timeline.step_s, phase_s)
    ms = MS_PER_S * np.interp([0.0, *timeline.seconds, timeline.step_s], knots, drawn)
    spans = [
        Span(p.name, *(MS_PER_S * np.interp([p.start, p.end], knots, drawn)).tolist())
        for p in timeline.phases
    ]
    return ms.tolist(), spans


def _drawn(total: np.ndarray, needed: set[int], most: int) -> list[int]:
    """Return the indices to draw: those needed, and the lowest and highest of `most / 2` equal stretches."""
    if len(total) <= most:
        return list(range(len(total)))
    stretches = np.array_split(np.arange(len(total)), most // 2)
    ends = {int(at[find(total[at])]) for at in stretches for find in (np.argmin, np.argmax)}
    return sorted(needed | ends)


def _stretch(
    phases: list[PhaseMark], step_s: float, phase_s: dict[str, float]
) -> tuple[list[float], list[float]]:
    """Return the knots of a piecewise linear clock: seconds under the ledger, and seconds as drawn."""
    under_ledger = summed((phase.name, phase.end - phase.start) for phase in phases)
    knots, widths = [0.0], []
    for phase in sorted(phases, key=lambda p: p.start):
        factor = 1.0
        if phase.name in phase_s and under_ledger[phase.name] > 0:
            factor = phase_s[phase.name] / under_ledger[phase.name]
        widths += [0.0, factor * (phase.end - phase.start)]
        knots += [phase.start, phase.end]
    return [*knots, step_s], [0.0, *itertools.accumulate([*widths, 0.0])]

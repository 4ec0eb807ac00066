"""Memory by category as counter tracks of a trace for Perfetto (https://ui.perfetto.dev).

Events have Chrome's trace format, times in microseconds. In torch.profiler's trace the tracks show another
step than the traced one: the ledger's, each phase stretched to its length in the trace.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpprof.record.ledger import StepTimeline
from dpprof.vocabulary.phases import STEP_LABEL, label_of, phase_of
from dpprof.vocabulary.units import US_PER_S

Event = dict[str, Any]
Clock = Callable[[float], float]

TOTAL = "total"
# Category of these events in a trace.
_MARK = "dpprof_memory"
_MICROSECOND_DIGITS = 3


def with_memory(trace: dict[str, Any], timeline: StepTimeline) -> dict[str, Any]:
    """Return torch.profiler's trace with the counters, replacing earlier ones."""
    events = [event for event in trace["traceEvents"] if event.get("cat") != _MARK]
    own = [event for event in events if event.get("cat") == "user_annotation"]
    steps = [event for event in own if event["name"] == STEP_LABEL]
    if not steps:
        return trace | {"traceEvents": events}
    step = max(steps, key=lambda event: float(event["ts"]))
    start, end = float(step["ts"]), float(step["ts"] + step["dur"])
    phases = [event for event in own if phase_of(event["name"]) is not None and start <= event["ts"] <= end]
    phases.sort(key=lambda event: float(event["ts"]))
    if [phase_of(event["name"]) for event in phases] == [p.name for p in timeline.phases]:
        inner = [(float(event["ts"]), float(event["ts"] + event["dur"])) for event in phases]
        which = "the ledger's step, fitted to this one phase by phase"
    else:
        inner = []
        which = "the ledger's step, stretched as a whole: its phases are others"
    clock = _clock(timeline, start, end, inner)
    pid = 1 + max((event["pid"] for event in events if isinstance(event["pid"], int)), default=0)
    return trace | {"traceEvents": [*events, *_counters(timeline, clock, pid, which)]}


def own_trace(timeline: StepTimeline, which: str) -> dict[str, Any]:
    """Return a trace of only the counters, with phases as slices; `which` says whose time it shows."""
    clock = _clock(timeline, 0.0, timeline.step_s * US_PER_S, [])
    slices = [
        _event("X", label_of(phase.name), clock(phase.start), 1)
        | {"dur": round(clock(phase.end) - clock(phase.start), _MICROSECOND_DIGITS)}
        for phase in timeline.phases
    ]
    named = _event("M", "thread_name", 0.0, 1) | {"args": {"name": "phases"}}
    events = [named, *slices, *_counters(timeline, clock, 1, which)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _clock(timeline: StepTimeline, start: float, end: float, phases: list[tuple[float, float]]) -> Clock:
    """Return a clock from seconds of the ledger's step to microseconds of a trace.

    `start` and `end` are the step's; `phases` those of all its phases, or none.
    """
    seconds, drawn = [0.0], [start]
    for phase, (first, last) in zip(timeline.phases if phases else (), phases, strict=True):
        seconds += [phase.start, phase.end]
        drawn += [first, last]
    seconds.append(timeline.step_s)
    drawn.append(end)
    return lambda at: float(np.interp(at, seconds, drawn))


def _counters(timeline: StepTimeline, clock: Clock, pid: int, which: str) -> Iterator[Event]:
    yield _event("M", "process_name", clock(0.0), pid) | {"args": {"name": f"Memory: {which}"}}
    yield _event("M", "process_sort_index", clock(0.0), pid) | {"args": {"sort_index": -1}}
    for index, at, levels in _levels(timeline):
        ts = clock(at)
        for name, num_bytes in levels.items():
            yield _event("C", name, ts, pid) | {"args": {"bytes": num_bytes}}
        if index == timeline.peak_event:
            yield _event("i", f"peak: {levels[TOTAL]} bytes", ts, pid) | {"s": "p"}


def _levels(timeline: StepTimeline) -> Iterator[tuple[int, float, dict[str, int]]]:
    """Yield each event (-1: the step's start) with its second and the changed levels in bytes."""
    held = dict.fromkeys(timeline.categories, 0) | timeline.start
    total = sum(held.values())
    yield -1, 0.0, {TOTAL: total} | held
    for i, changed in enumerate(timeline.changes()):
        for category, num_bytes in changed:
            held[category] += num_bytes
            total += num_bytes
        yield i, timeline.seconds[i], {TOTAL: total} | {category: held[category] for category, _ in changed}


def _event(ph: str, name: str, ts: float, pid: int) -> Event:
    return {
        "ph": ph,
        "cat": _MARK,
        "name": name,
        "ts": round(ts, _MICROSECOND_DIGITS),
        "pid": pid,
        "tid": 0,
    }

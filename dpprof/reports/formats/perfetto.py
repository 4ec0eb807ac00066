"""Memory by category as counter tracks of a trace that Perfetto opens (https://ui.perfetto.dev).

The events are those of Chrome's trace format, times in microseconds. In torch.profiler's trace the tracks
show another step than the traced one: the ledger's, each phase stretched to the length that it has here.
"""

import bisect
from collections.abc import Iterator
from typing import Any

from dpprof.record.ledger import StepTimeline
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.phases import PHASE_LABEL, STEP_LABEL
from dpprof.vocabulary.units import US_PER_S

Event = dict[str, Any]

TOTAL = "together"
# Says which of a trace's events are these.
_MARK = "dpprof_memory"
_MICROSECOND_DIGITS = 3


def with_memory(trace: dict[str, Any], timeline: StepTimeline) -> dict[str, Any]:
    """torch.profiler's trace with the counters in it, in place of any that it has already."""
    events = [event for event in trace["traceEvents"] if event.get("cat") != _MARK]
    own = [event for event in events if event.get("cat") == "user_annotation"]
    steps = [event for event in own if event["name"] == STEP_LABEL]
    if not steps:
        return trace | {"traceEvents": events}
    step = max(steps, key=lambda event: float(event["ts"]))
    start, end = float(step["ts"]), float(step["ts"] + step["dur"])
    phases = [event for event in own if event["name"].startswith(PHASE_LABEL) and start <= event["ts"] <= end]
    phases.sort(key=lambda event: float(event["ts"]))
    if [event["name"].removeprefix(PHASE_LABEL) for event in phases] == [p.name for p in timeline.phases]:
        inner = [(float(event["ts"]), float(event["ts"] + event["dur"])) for event in phases]
        which = "the ledger's step, fitted to this one phase by phase"
    else:
        inner = []
        which = "the ledger's step, whose phases are not where this one's are"
    clock = _Clock(timeline, start, end, inner)
    pid = 1 + max((event["pid"] for event in events if isinstance(event["pid"], int)), default=0)
    return trace | {"traceEvents": [*events, *_counters(timeline, clock, pid, which)]}


def own_trace(timeline: StepTimeline, which: str) -> dict[str, Any]:
    """A trace of nothing but the counters, with the phases as slices. `which` says whose time it shows."""
    clock = _Clock(timeline, 0.0, timeline.step_s * US_PER_S, [])
    slices = [
        _event("X", PHASE_LABEL + phase.name, clock.at(phase.start), 1)
        | {"dur": round(clock.at(phase.end) - clock.at(phase.start), _MICROSECOND_DIGITS)}
        for phase in timeline.phases
    ]
    named = _event("M", "thread_name", 0.0, 1) | {"args": {"name": "phases"}}
    events = [named, *slices, *_counters(timeline, clock, 1, which)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


class _Clock:
    """Translates seconds of the ledger's step into a trace's microseconds.

    `start` and `end` are the step's, `phases` those of its phases, as many as the ledger's, or none.
    """

    def __init__(
        self, timeline: StepTimeline, start: float, end: float, phases: list[tuple[float, float]]
    ) -> None:
        self._from, self._to = [0.0], [start]
        for phase, (first, last) in zip(timeline.phases if phases else (), phases, strict=True):
            self._from += [phase.start, phase.end]
            self._to += [first, last]
        self._from.append(timeline.step_s)
        self._to.append(end)

    def at(self, seconds: float) -> float:
        """The moment in the trace."""
        i = min(max(bisect.bisect_right(self._from, seconds), 1), len(self._from) - 1)
        before, after = self._from[i - 1], self._from[i]
        share = min(max((seconds - before) / (after - before), 0.0), 1.0) if after > before else 0.0
        return self._to[i - 1] + share * (self._to[i] - self._to[i - 1])


def _counters(timeline: StepTimeline, clock: _Clock, pid: int, which: str) -> Iterator[Event]:
    yield _event("M", "process_name", clock.at(0.0), pid) | {"args": {"name": f"Memory: {which}"}}
    yield _event("M", "process_sort_index", clock.at(0.0), pid) | {"args": {"sort_index": -1}}
    for index, at, levels in _levels(timeline):
        ts = clock.at(at)
        for name, num_bytes in levels.items():
            yield _event("C", name, ts, pid) | {"args": {"bytes": num_bytes}}
        if index == timeline.peak_event:
            yield _event("i", f"peak: {levels[TOTAL]} bytes", ts, pid) | {"s": "p"}


def _levels(timeline: StepTimeline) -> Iterator[tuple[int, float, dict[str, int]]]:
    """Each event (-1: the step's start) with its second, and the levels in bytes that it changes."""
    named = (*timeline.start, *timeline.category, *filter(None, timeline.moved_to))
    held = dict.fromkeys(listed_first(named, CATEGORIES), 0) | timeline.start
    total = sum(held.values())
    yield -1, 0.0, {TOTAL: total} | held
    for i, seconds in enumerate(timeline.seconds):
        category, moved_to, num_bytes = timeline.category[i], timeline.moved_to[i], timeline.num_bytes[i]
        if moved_to is None:
            held[category] += num_bytes
            total += num_bytes
            yield i, seconds, {TOTAL: total, category: held[category]}
        else:
            held[category] -= num_bytes
            held[moved_to] += num_bytes
            yield i, seconds, {TOTAL: total, category: held[category], moved_to: held[moved_to]}


def _event(ph: str, name: str, ts: float, pid: int) -> Event:
    return {
        "ph": ph,
        "cat": _MARK,
        "name": name,
        "ts": round(ts, _MICROSECOND_DIGITS),
        "pid": pid,
        "tid": 0,
    }

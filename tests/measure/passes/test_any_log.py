"""Any log, replayed event by event, against its account."""

import json
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from step_logs import born, life, log, moved, span

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.storages import Event, StepLog
from dpprof.record.ledger import StepTimeline

NAMES = st.sampled_from(["parameters", "activations", "gradients", "noise"])


@st.composite
def logs(draw: st.DrawFn) -> tuple[StepLog, int]:
    """Births (and how many), deaths, resizings and moves, and phases that do not overlap."""
    num_births = 0
    present = [life(n, draw(st.none() | NAMES)) for n in draw(st.lists(st.integers(1, 100), max_size=4))]
    alive = [(a, a.num_bytes) for a in present]
    events: list[Event] = []
    for action in draw(st.lists(st.sampled_from(["birth", "death", "resize", "move"]), max_size=25)):
        if action == "birth":
            a = life(draw(st.integers(1, 100)), draw(st.none() | NAMES))
            alive.append((a, a.num_bytes))
            events.append(born(a))
            num_births += 1
        elif alive:
            a, num_bytes = alive.pop(draw(st.integers(0, len(alive) - 1)))
            if action == "death":
                events.append(Event(11, a, -num_bytes))
                continue
            change = draw(st.integers(-num_bytes, 100)) if action == "resize" else 0
            events.append(Event(11, a, change) if action == "resize" else moved(a, draw(NAMES)))
            alive.append((a, num_bytes + change))
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), min_size=2, max_size=6)))
    names = st.sampled_from(["forward", "backward", "clip"])
    phases = [span(draw(names), first, end) for first, end in zip(cuts[::2], cuts[1::2], strict=False)]
    return log(events, present, phases), num_births


@settings(deadline=None)
@given(logs())
def test_any_log_replayed_from_its_timeline_gives_its_figures(logged: tuple[StepLog, int]) -> None:
    log, num_births = logged
    account = Account(log)
    found, timeline = account.result([]), account.timeline()
    levels: dict[str, int] = defaultdict(int, timeline.start)
    history = [dict(levels)]
    changes = zip(timeline.category, timeline.num_bytes, timeline.moved_to, strict=True)
    for category, num_bytes, moved_to in changes:
        levels[category] += num_bytes if moved_to is None else -num_bytes
        if moved_to is not None:
            levels[moved_to] += num_bytes
        history.append({name: held for name, held in levels.items() if held})
    totals = [sum(moment.values()) for moment in history]

    assert len(history) == 1 + len(log.events)
    assert all(held > 0 for moment in history for held in moment.values())
    assert found.peak == max(totals)
    assert timeline.peak_event == totals.index(max(totals)) - 1
    assert found.at_peak == history[timeline.peak_event + 1]
    assert found.after_step == history[-1]
    assert sum(row.num_bytes for row in timeline.tensors) == found.peak
    for i, moment in enumerate(history):
        by_category: dict[str, int] = defaultdict(int)
        for row in timeline.alive_after(i - 1).values():
            by_category[row.category] += row.num_bytes
        assert by_category == moment
    assert len(timeline.storages) == timeline.num_present + found.num_storages
    assert StepTimeline.from_dict(json.loads(json.dumps(timeline.to_dict()))) == timeline
    assert found.num_storages == num_births
    in_phases: dict[str, list[int]] = defaultdict(list)
    for phase in timeline.phases:
        in_phases[phase.name] += totals[phase.first_event : phase.end_event + 1]
    assert {name: peak.num_bytes for name, peak in found.phase_peak.items()} == {
        name: max(reached) for name, reached in in_phases.items()
    }
    for peak in found.phase_peak.values():
        assert sum(peak.by_category.values()) == peak.num_bytes
        assert peak.by_category in history

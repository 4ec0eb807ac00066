"""The account of a step's log, by hand and of any log."""

import json
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.storages import Event, Life, StepLog
from dpprof.record.ledger import HeldTensor, LedgerResult, PhaseMark, PhasePeak, StepTimeline, TrafficRow


def life(num_bytes: int, category: str | None = None, name: str = "") -> Life:
    return Life(
        num_bytes,
        shape=(num_bytes,),
        dtype="uint8",
        operator="aten::empty",
        phase="forward",
        module="head",
        name=name,
        category=category,
        first_category=category,
    )


def log(
    events: list[Event], present: list[Life] | None = None, phases: list[PhaseMark] | None = None
) -> StepLog:
    return StepLog(10.0, [(p, p.num_bytes) for p in present or []], events, phases or [], end=20.0)


def born(life: Life, at: float = 11.0) -> Event:
    return Event(at, life, life.num_bytes)


def died(life: Life, at: float = 12.0) -> Event:
    return Event(at, life, -life.num_bytes)


def moved(life: Life, category: str, at: float = 11.5) -> Event:
    life.category = category
    return Event(at, life, 0, category)


def span(name: str, first_event: int, end_event: int) -> PhaseMark:
    return PhaseMark(name, 10.0 + first_event, 10.0 + end_event, first_event, end_event)


def peaks(account: Account) -> dict[str, int]:
    return {phase: peak.num_bytes for phase, peak in account.phase_peak.items()}


def test_a_step_may_begin_at_its_peak() -> None:
    old, new = life(100, "gradients"), life(60, "gradients")
    account = Account(log([died(old), born(new)], [old], [span("zero_grad", 0, 1), span("forward", 1, 2)]))
    assert (account.peak, account.peak_event, account.peak_phase) == (100, -1, "zero_grad")
    assert account.at_peak == {"gradients": 100}
    assert account.after_step == {"gradients": 60}
    assert peaks(account) == {"zero_grad": 100, "forward": 60}
    assert [row.num_bytes for row in account.timeline().tensors] == [100]


def test_what_nothing_tells_the_purpose_of_is_temporary_if_born_here_and_other_if_not() -> None:
    old, new = life(10), life(3)
    assert Account(log([born(new)], [old])).at_peak == {"temporary": 3, "other": 10}


def test_a_peak_between_phases_belongs_to_none() -> None:
    a, b = life(10), life(90)
    phases = [span("forward", 0, 1), span("backward", 2, 4)]
    account = Account(log([born(a), born(b), died(b), died(a)], phases=phases))
    assert (account.peak, account.peak_event, account.peak_phase) == (100, 1, None)


def test_a_phase_has_its_events_from_the_first_to_before_the_end() -> None:
    lives = [life(n) for n in (1, 2, 4, 8)]
    for index in range(4):
        phases = [span("noise", index, index + 1)]
        found = Account(log([born(a) for a in lives], phases=phases)).peak_phase
        assert found == ("noise" if index == 3 else None)
    phases = [span("forward", 0, 2), span("backward", 2, 4)]
    account = Account(log([born(a) for a in lives], phases=phases))
    assert account.peak_phase == "backward"
    assert peaks(account) == {"forward": 3, "backward": 15}


def test_tensors_at_the_peak_are_those_alive_then_largest_first_as_what_they_were_then() -> None:
    weights = life(40, "parameters", "head.weight")
    gone, late, moving, plain = life(500), life(1), life(30, "activations", "x"), life(60)
    events = [born(gone), died(gone), born(moving), moved(moving, "gradients"), born(plain)]
    events += [Event(12, plain, 840), moved(moving, "noise"), moved(plain, "inputs"), died(plain), born(late)]
    account = Account(log(events, [weights]))
    assert (account.peak, account.peak_event) == (40 + 30 + 900, 5)
    listed = account.timeline().tensors
    assert [(row.num_bytes, row.category, row.name) for row in listed] == [
        (900, "temporary", ""),
        (40, "parameters", "head.weight"),
        (30, "gradients", "x"),
    ]
    assert sum(row.num_bytes for row in listed) == account.peak
    assert listed[1] == HeldTensor(
        40, "parameters", [40], "uint8", "head.weight", "head", "forward", "aten::empty"
    )


def test_result_keeps_what_was_found_and_counts_storages_born_in_the_step() -> None:
    old, a, b = life(10, "parameters"), life(5, "inputs"), life(20, "noise")
    traffic = [TrafficRow("aten::mm", "matrix_product", "forward", 1, 2, 3, 4)]
    events = [born(a), Event(12, a, 3), moved(a, "other"), died(old), born(b), died(b)]
    found = Account(log(events, [old], [span("forward", 0, 6)])).result(traffic)
    assert found == LedgerResult(
        peak=28,
        peak_phase="forward",
        at_peak={"noise": 20, "other": 8},
        phase_peak={"forward": PhasePeak(28, {"noise": 20, "other": 8})},
        after_step={"other": 8},
        traffic=traffic,
        step_s=10.0,
        num_storages=2,
        growth=8 - 10,
    )


def test_timeline_counts_seconds_from_the_steps_start() -> None:
    old, a = life(10, "parameters"), life(5, "inputs")
    events = [born(a, at=10.5), moved(a, "noise", at=11.0), died(a, at=14.0)]
    found = Account(log(events, [old], [PhaseMark("forward", 10.25, 12.0, 0, 2)])).timeline()
    assert found == StepTimeline(
        start={"parameters": 10},
        seconds=[0.5, 1.0, 4.0],
        category=["inputs", "inputs", "noise"],
        num_bytes=[5, 5, -5],
        moved_to=[None, "noise", None],
        phases=[PhaseMark("forward", 0.25, 2.0, 0, 2)],
        step_s=10.0,
        peak_event=0,
        storages=[
            HeldTensor(10, "parameters", [10], "uint8", "", "head", "forward", "aten::empty"),
            HeldTensor(5, "inputs", [5], "uint8", "", "head", "forward", "aten::empty"),
        ],
        storage_index=[1, 1, 1],
        num_present=1,
    )


def test_categories_stand_in_their_usual_order() -> None:
    lives = [life(1, c) for c in ("noise", "parameters", "gradients", "activations")]
    account = Account(log([born(a) for a in lives]))
    assert list(account.at_peak) == ["parameters", "activations", "gradients", "noise"]


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
    assert found.peak == log.peak == max(totals)
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

"""The account of a step's log: peaks, categories and phases."""

from step_logs import born, died, life, log, moved, span

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.storages import Event, PhaseSpan
from dpprof.record.ledger import HeldTensor, LedgerResult, PhaseMark, PhasePeak, StepTimeline, TrafficRow


def peaks(account: Account) -> dict[str, int]:
    return {phase: peak.num_bytes for phase, peak in account.phase_peak.items()}


def test_the_peak_is_the_most_alive_at_once_and_of_equals_the_first() -> None:
    a, b, c, d = (life(n) for n in (100, 30, 20, 50))
    account = Account(log([born(a), born(b), died(b), born(c), died(a), born(d), died(d)]))
    assert (account.peak, account.peak_event) == (130, 1)
    again = Account(log([born(a), died(a), born(life(100))]))
    assert (again.peak, again.peak_event) == (100, 0)


def test_what_was_there_before_counts_throughout() -> None:
    weights, a = life(1_000, "parameters"), life(5, "activations")
    account = Account(log([born(a), died(a)], [weights]))
    assert account.peak == 1_005
    assert account.start == {"parameters": 1_000}
    assert account.at_peak == {"parameters": 1_000, "activations": 5}
    assert account.after_step == {"parameters": 1_000}


def test_a_step_may_begin_at_its_peak() -> None:
    old, new = life(100, "gradients"), life(60, "gradients")
    account = Account(log([died(old), born(new)], [old], [span("zero_grad", 0, 1), span("forward", 1, 2)]))
    assert (account.peak, account.peak_event, account.peak_phase) == (100, -1, "zero_grad")
    assert account.at_peak == {"gradients": 100}
    assert account.after_step == {"gradients": 60}
    assert peaks(account) == {"zero_grad": 100, "forward": 60}
    assert [row.num_bytes for row in account.tensors_at_peak] == [100]


def test_a_step_in_which_nothing_happens() -> None:
    account = Account(log([], [life(7, "buffers")], [span("forward", 0, 0)]))
    assert (account.peak, account.peak_event, account.peak_phase) == (7, -1, "forward")
    assert account.phase_peak == {"forward": PhasePeak(7, {"buffers": 7})}
    assert account.result([]).num_storages == 0
    empty = Account(log([]))
    assert (empty.peak, empty.at_peak, empty.after_step, empty.tensors_at_peak) == (0, {}, {}, [])


def test_what_nothing_tells_the_purpose_of_is_temporary_if_born_here_and_other_if_not() -> None:
    old, new = life(10), life(3)
    account = Account(log([born(new)], [old]))
    assert account.at_peak == {"temporary": 3, "other": 10}


def test_the_first_category_holds_from_birth_and_the_next_from_when_it_was_booked() -> None:
    a, b, c = life(100, "activations"), life(10), life(1, "noise")
    events = [
        born(a),
        born(b),
        moved(a, "gradients"),
        moved(a, "summed_gradients"),
        died(b),
        born(c),
        died(a),
    ]
    account = Account(log(events))
    assert list(account.changes) == [
        ("activations", 100, None),
        ("temporary", 10, None),
        ("activations", 100, "gradients"),
        ("gradients", 100, "summed_gradients"),
        ("temporary", -10, None),
        ("noise", 1, None),
        ("summed_gradients", -100, None),
    ]
    assert account.at_peak == {"activations": 100, "temporary": 10}
    assert account.after_step == {"noise": 1}


def test_what_was_there_before_goes_over_with_all_its_bytes() -> None:
    old, grown = life(64, "gradients"), life(8)
    events = [
        Event(11, old, 36),
        moved(old, "noise"),
        born(grown),
        Event(12, grown, 2),
        moved(grown, "inputs"),
    ]
    account = Account(log(events, [old]))
    assert list(account.changes) == [
        ("gradients", 36, None),
        ("gradients", 100, "noise"),
        ("temporary", 8, None),
        ("temporary", 2, None),
        ("temporary", 10, "inputs"),
    ]
    assert account.after_step == {"inputs": 10, "noise": 100}


def test_a_peak_between_phases_belongs_to_none() -> None:
    a, b = life(10), life(90)
    phases = [span("forward", 0, 1), span("backward", 2, 4)]
    account = Account(log([born(a), born(b), died(b), died(a)], phases=phases))
    assert (account.peak, account.peak_event, account.peak_phase) == (100, 1, None)


def test_a_phase_has_its_events_from_the_first_to_before_the_end() -> None:
    lives = [life(n) for n in (1, 2, 4, 8)]
    for index, phase in enumerate(("forward", "backward", "clip", "noise")):
        phases = [span(phase, index, index + 1)]
        assert Account(log([born(a) for a in lives], phases=phases)).peak_phase == (
            "noise" if phase == "noise" else None
        )
    phases = [span("forward", 0, 2), span("backward", 2, 4)]
    account = Account(log([born(a) for a in lives], phases=phases))
    assert account.peak_phase == "backward"
    assert peaks(account) == {"forward": 3, "backward": 15}


def test_a_phase_also_has_the_level_that_it_starts_with() -> None:
    a, b = life(100, "activations"), life(5, "gradients")
    events = [born(a), died(a), born(b)]
    account = Account(log(events, phases=[span("forward", 0, 1), span("backward", 1, 3), span("clip", 3, 3)]))
    assert account.phase_peak == {
        "forward": PhasePeak(100, {"activations": 100}),
        "backward": PhasePeak(100, {"activations": 100}),
        "clip": PhasePeak(5, {"gradients": 5}),
    }
    assert account.peak_phase == "forward"


def test_a_phase_that_occurs_twice_has_the_higher_of_its_peaks() -> None:
    a, b, c = life(50, "noise"), life(200, "gradients"), life(70, "noise")
    phases = [span("clip", 0, 2), span("backward", 2, 4), span("clip", 4, 6)]
    account = Account(log([born(a), died(a), born(b), died(b), born(c), died(c)], phases=phases))
    assert account.phase_peak == {
        "clip": PhasePeak(70, {"noise": 70}),
        "backward": PhasePeak(200, {"gradients": 200}),
    }
    assert account.peak_phase == "backward"


def test_tensors_at_the_peak_are_those_alive_then_largest_first_as_what_they_were_then() -> None:
    weights = life(40, "parameters", "head.weight")
    gone, late, moving, plain = life(500), life(1), life(30, "activations", "x"), life(60)
    events = [born(gone), died(gone), born(moving), moved(moving, "gradients"), born(plain)]
    events += [Event(12, plain, 840), moved(moving, "noise"), moved(plain, "inputs"), died(plain), born(late)]
    account = Account(log(events, [weights]))
    assert (account.peak, account.peak_event) == (40 + 30 + 900, 5)
    listed = account.tensors_at_peak
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
        block_rounding=996,  # 8 and 20 bytes, each in a block of 512
        growth=8 - 10,
    )


def test_timeline_counts_seconds_from_the_steps_start() -> None:
    old, a = life(10, "parameters"), life(5, "inputs")
    events = [born(a, at=10.5), moved(a, "noise", at=11.0), died(a, at=14.0)]
    found = Account(log(events, [old], [PhaseSpan("forward", 10.25, 12.0, 0, 2)])).timeline()
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


def test_storages_stand_in_order_of_birth_as_they_began() -> None:
    old, unused, a, b = life(10, "gradients"), life(4), life(5, "inputs"), life(6)
    events = [born(b), born(a), Event(12, old, 30), moved(old, "noise"), died(b), Event(13, a, 2)]
    found = Account(log(events, [old, unused])).timeline()
    assert [(row.num_bytes, row.category) for row in found.storages] == [
        (10, "gradients"),
        (4, "other"),
        (6, "temporary"),
        (5, "inputs"),
    ]
    assert (found.num_present, found.storage_index) == (2, [2, 3, 0, 0, 2, 3])
    assert [(row.num_bytes, row.category) for row in found.alive_after(3).values()] == [
        (40, "noise"),
        (6, "temporary"),
        (5, "inputs"),
        (4, "other"),
    ]


def test_categories_stand_in_their_usual_order() -> None:
    lives = [life(1, c) for c in ("noise", "parameters", "gradients", "activations")]
    account = Account(log([born(a) for a in lives]))
    assert list(account.at_peak) == ["parameters", "activations", "gradients", "noise"]

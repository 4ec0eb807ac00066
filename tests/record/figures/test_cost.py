"""The one model of what a step costs: from estimates and measured steps to any batch, against arithmetic."""

import dataclasses

import pytest
from example_config import changed
from example_costs import COST, MIB, ON_H100, ledger, resolved, row
from example_estimates import estimate
from example_runs import known

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.cost import Affine, StepCost
from dpprof.record.figures.estimate import EstimateFigures
from dpprof.record.figures.results import Result
from dpprof.record.figures.step import PREDICTED, UNKNOWN, LogicalStep
from dpprof.record.ledger import CollectiveRow, Doubt, LedgerResult, PhasePeak, PhaseTime, TrafficRow


def taking(seconds: float, phase: str, host_s: float = 0.0) -> TrafficRow:
    """An operator that is predicted to take so long, half of it at least and three times that at most."""
    found = row(phase)
    found.predicted_s, found.least_s, found.most_s = seconds, seconds / 2, 3 * seconds
    found.host_s = host_s
    return found


def step(found: LedgerResult, config: ExperimentConfig = ON_H100) -> LogicalStep:
    return LogicalStep.of(resolved(config), found)


def test_a_line_goes_through_its_points() -> None:
    line = Affine.through([(2, 7.0), (3, 9.0), (4, 11.0)])
    assert (line.constant, line.slope) == (3.0, 2.0)
    assert Affine.through([(5, 4.0)])(100) == 4.0


def test_the_time_of_a_logical_batch_repeats_what_every_physical_batch_has() -> None:
    """Two physical batches of 3 samples were estimated; 12 samples take four."""
    config = dataclasses.replace(resolved(ON_H100), accumulation_steps=2)
    cost = StepCost.of([(config, ledger(taking(2, "forward"), taking(4, "backward"), taking(5, "noise")))])
    for samples, seconds in ((6, 2 + 4 + 5), (12, 4 + 8 + 5), (3, 1 + 2 + 5)):
        assert cost.logical(3, samples / 3).time == pytest.approx((seconds, seconds / 2, 3 * seconds))
    unpredicted = StepCost.of([(config, ledger(row("forward", moved=5)))]).logical(3, 4)
    assert (unpredicted.time, unpredicted.time_basis, unpredicted.moved) == (None, UNKNOWN, 10)


def test_a_cost_is_affine_in_the_samples_and_corrected_by_what_earlier_runs_took() -> None:
    found = COST.logical(8, 4)
    assert found.time_basis == PREDICTED
    assert found.time == pytest.approx((0.67, 0.67 / 2, 2 * 0.67))
    low, high = 0.8, 1.25
    assert known(COST.corrected(low, high).logical(8, 4).time)[1:] == pytest.approx((0.67 / high, 0.67 / low))


def of_batch(batch: int, *, in_doubt: int | None = 0) -> Result:
    """An estimate whose forward keeps 10 MiB and 3 for each sample, and whose noise takes 40 MiB."""
    made = estimate(target="H200", batch_size=batch)
    found = known(known(made.record).ledger)
    found.phase_peak = {"forward": PhasePeak((10 + 3 * batch) * MIB, {}), "noise": PhasePeak(40 * MIB, {})}
    found.peak = max(one.num_bytes for one in found.phase_peak.values())
    found.peak_phase = max(found.phase_peak, key=lambda name: found.phase_peak[name].num_bytes)
    found.doubts = [Doubt("a", "b", in_doubt)]
    return made


def test_the_peak_moves_from_one_phase_to_another() -> None:
    cost = StepCost.of([known(of_batch(batch).estimated) for batch in (4, 8)])
    for batch, phase in ((2, "noise"), (4, "noise"), (8, "noise"), (16, "forward"), (100, "forward")):
        found, whole = cost.logical(batch), LogicalStep.of(*known(of_batch(batch).estimated))
        assert (found.needed, found.peak_phase) == (whole.needed, whole.peak_phase), batch
        assert found.peak_phase == phase


def test_what_is_in_doubt_is_added_and_may_have_no_bound() -> None:
    sure, unsure = (StepCost.of([known(of_batch(4, in_doubt=n).estimated)]) for n in (0, 5 * MIB))
    assert unsure.logical(4).needed == sure.logical(4).needed + 5 * MIB
    assert StepCost.of([known(of_batch(4, in_doubt=None).estimated)]).doubt is None


def with_batches(number: int) -> Result:
    """An estimate whose first physical batch moves 5 bytes and multiplies 7 times, and each further one 3
    and 4; the noise moves 11.
    """
    made = estimate(target="H200", accumulation_steps=number)
    found = known(known(made.record).ledger)
    more = number - 1
    found.traffic = [
        TrafficRow("aten::mm", "matrix_product", "forward", number, 5 + 3 * more, 0, 7 + 4 * more),
        TrafficRow("aten::add_", "noise", "noise", 1, 10, 1, 0),
    ]
    found.phase_peak = {each.phase or "": PhasePeak(1, {}) for each in found.traffic}
    found.phase_s = {
        "forward": PhaseTime(0.3 + 0.1 * more, 0.2, 0.6, operators=number),
        "noise": PhaseTime(0.7, 0.5, 0.9, operators=2),
    }
    found.collectives = [CollectiveRow("all_reduce", "forward", number, 0, 100 * number)]
    return made


@pytest.mark.parametrize("number", [5, 8, 64])
def test_each_further_batch_costs_what_the_third_does(number: int) -> None:
    cost = StepCost.of([known(with_batches(each).estimated) for each in (2, 3)])
    whole = cost.logical(with_batches(number).config.batch_size, number)
    assert (whole.flops, whole.moved) == (7 + 4 * (number - 1), 5 + 3 * (number - 1) + 11)
    assert whole.seconds == pytest.approx(0.3 + 0.1 * (number - 1) + 0.7)
    assert whole.total.sent == 100 * number
    assert {name: one.operators for name, one in whole.phases.items()} == {"forward": number, "noise": 2}


def test_a_phase_takes_what_the_clock_of_its_step_found_and_what_ranks_send() -> None:
    found = ledger(taking(2, "forward"), taking(1, "noise"))
    found.phase_s = {"forward": PhaseTime(3, 2, 6), "noise": PhaseTime(5, 1, 9)}
    assert step(found).by_phase == {"forward": (3, 2, 6), "noise": (5, 1, 9)}
    found.collectives = [CollectiveRow("all_reduce", "noise", calls=1, predicted_s=0.5)]
    assert step(found).by_phase["noise"] == (5.5, 1.5, 9.5)


def test_a_range_holds_its_time_where_a_phase_waits_less_in_a_slower_step() -> None:
    found = ledger(taking(1, "noise"))
    found.phase_s = {"noise": PhaseTime(0.3, 1.5, 0.2)}
    assert step(found).by_phase["noise"] == (0.3, 0.2, 1.5)


def test_a_step_is_bound_by_what_takes_its_time() -> None:
    multiplied, added = taking(2, "forward"), taking(1, "noise")
    multiplied.arithmetic_s = 1.5
    found = ledger(multiplied, added, taking(7, "outside of phases"))
    found.traffic[-1].phase = None
    del found.phase_peak["outside of phases"]
    found.phase_s = {
        "forward": PhaseTime(2, 1, 3, operators=10),
        "noise": PhaseTime(6, 4, 9, operators=1_200),
    }
    assert known(step(found).bound) == (1.5 / 8, 1.5 / 8, 5 / 8, 1_210)
    assert known(step(found).bound).words == (
        "is launch-bound: the GPU waits 62 % of it for the host to issue 1,210 operators"
    )
    found.collectives = [CollectiveRow("all_reduce", "noise", calls=1, predicted_s=12.0)]
    assert known(step(found).bound)[:3] == (1.5 / 20, 1.5 / 20, 5 / 20), "ranks send"
    found.collectives = []
    found.phase_s["noise"].seconds = 2
    assert known(step(found).bound).words == ""


def test_a_processor_and_an_older_ledger_tell_of_no_bound() -> None:
    found = ledger(taking(2, "forward", host_s=4))
    assert step(found).bound is None
    found.phase_s = {"forward": PhaseTime(2, 1, 3)}
    assert step(found).bound is None, "no operator was issued"


# In folders of 0.3.
def test_a_phase_ends_when_its_host_has_issued_it() -> None:
    found = step(ledger(taking(2, "forward"), taking(1, "noise", host_s=4)))
    assert found.by_phase == {"forward": (2, 1, 6), "noise": (2, 1, 3)}, (
        "the host may be twice or half as fast"
    )
    assert found.time == (4, 2, 9)


def test_a_host_runs_ahead_of_the_device() -> None:
    assert step(ledger(taking(2, "forward"), taking(1, "noise", host_s=2))).by_phase["noise"].seconds == 1


def test_what_ranks_send_overlaps_with_forward_and_backward_but_for_the_last() -> None:
    config = changed(resolved(ON_H100), parallel="ddp", world_size=2)
    found = ledger(taking(2, "backward"), taking(1, "noise"))
    found.collectives = [
        CollectiveRow("all_reduce", "backward", calls=4, predicted_s=1.0),
        CollectiveRow("all_reduce", "noise", calls=1, predicted_s=0.5),
    ]
    time = step(found, config).by_phase
    assert time["backward"].seconds == 2.25
    assert time["noise"].seconds == 1.5
    on_cpu = changed(config, device="cpu", target="none")
    assert step(found, on_cpu).by_phase["backward"].seconds == 3, "ranks share its cores"
    found.collectives[0].predicted_s = 8.0
    assert step(found, config).by_phase["backward"].seconds == 8.0
    found.collectives = [CollectiveRow("broadcast", "noise", 1, 0, 225 * 10**9, predicted_s=None)]
    assert step(found, config).by_phase["noise"].seconds == 1.5, "at the link's rate, if not measured"
    slow = changed(config, link_gb_per_s=22.5)
    found.collectives[0].predicted_s = 0.5
    assert step(found, slow).by_phase["noise"].seconds == 11, "at the rate that was given"


def test_the_time_of_sending_is_that_of_every_collective_or_not_known() -> None:
    made = estimate(target="H200")
    record = known(made.record)
    found = known(record.ledger)
    assert EstimateFigures.of(record, found).sending_s is None, "it sends nothing"
    found.collectives = [
        CollectiveRow("all_reduce", "backward", 1, 0, 10, predicted_s=0.5),
        CollectiveRow("broadcast", "backward", 1, 0, 450 * 10**9),
    ]
    assert EstimateFigures.of(record, found).sending_s == 1.5
    record.config["target"] = "none"
    assert EstimateFigures.of(record, found).sending_s is None, "a broadcast has no time"

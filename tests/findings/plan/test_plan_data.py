"""Plans against arithmetic: costs of phases, times, the front, what is recommended."""

import dataclasses
from typing import Any

import pytest
from example_costs import COST
from example_results import result

from dpprof.config.entry_points import PlanConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.findings.plan.data import (
    BatchNoise,
    Fitted,
    TrainingOption,
    close_to_best,
    front,
    largest_useful_batch,
    option_of,
    recommended,
)
from dpprof.findings.plan.timing import MeasuredSteps, Reached
from dpprof.privacy.guarantee import PRV, Guarantee
from dpprof.record.figures.cost import Affine, StepCost
from dpprof.record.figures.results import Result
from dpprof.record.figures.step import MEASURED, PREDICTED, UNKNOWN, TimeRange, link_of

CONFIG = parse_experiment(
    {"trainer": "bk", "model_size": "tiny", "target": "H100", "savings": False}, EstimatingConfig
).resolve(cuda_available=True)
ON_CPU = parse_experiment(
    {"trainer": "bk", "model_size": "tiny", "device": "cpu", "device_memory_gib": 1}, EstimatingConfig
).resolve(cuda_available=False)
PLAN = PlanConfig(dataset_size=100_000)


def noise(logical_batch: int, multiplier: float = 1.0, steps: int = 3600) -> BatchNoise:
    rate = logical_batch / 100_000
    guarantee = Guarantee(PRV, multiplier, 8.0, 1e-6, rate, steps)
    return BatchNoise(logical_batch, rate, steps, rate * steps, guarantee, None)


def option_with(fitted: Fitted, logical_batch: int, plan: PlanConfig = PLAN) -> TrainingOption:
    found = option_of(fitted, noise(logical_batch), plan)
    assert found is not None
    return found


def test_two_measured_sizes_give_a_line_and_one_grows_as_predicted() -> None:
    at = ((2, {"forward": 0.2, "noise": 0.5}), (4, {"forward": 0.3, "noise": 0.5}))
    one, two = (
        MeasuredSteps(at[:count], ("run",), has_ranks=False).cost(ON_CPU, COST).logical(8, 4)
        for count in (1, 2)
    )
    assert one.time == pytest.approx((4 * 0.8 + 0.5,) * 3)
    assert two.time == pytest.approx((4 * 0.5 + 0.5,) * 3)
    assert two.time_basis == MEASURED
    assert StepCost({}).logical(8, 4).time_basis == UNKNOWN


def test_ranks_that_were_not_measured_send_within_the_step_or_on_top() -> None:
    ranks = dataclasses.replace(CONFIG, parallel="ddp", world_size=2)
    measured = MeasuredSteps(((8, {"noise": 0.5}),), ("run",), has_ranks=False).cost(ranks, COST)
    noise = dataclasses.replace(measured.phases["noise"], each={"sent": Affine(link_of(ranks) * 1e9)})
    cost = dataclasses.replace(measured, phases={"noise": noise})
    assert cost.logical(8, 0.25).time == pytest.approx((0.625, 0.5, 0.75))
    assert cost.logical(8, 2).time == pytest.approx((2.25, 2.0, 2.5))


def test_an_option_is_limited_by_memory_and_by_what_is_ever_drawn() -> None:
    small, large = (option_with(Fitted(CONFIG, size, COST), 256) for size in (10, 10_000))
    assert small.physical_batch == 10
    assert 26 <= small.num_physical < 26.5
    assert 256 < large.physical_batch < 400
    assert large.num_physical == pytest.approx(1.0, abs=1e-3)
    assert option_of(Fitted(CONFIG, 0), noise(256), PLAN) is None
    round_one = option_with(Fitted(CONFIG, 37, COST), 256)
    assert (round_one.physical_batch, round_one.largest) == (36, 37)


@pytest.mark.parametrize(
    ("asked", "largest_logical"),
    [
        ({"dataset_size": 20_000}, 512),
        ({"dataset_size": 3_000_000, "epochs": 3, "num_devices": 4}, 32_768),
        ({"dataset_size": 50_000, "logical_batches": "100,700,300"}, 700),
        ({"dataset_size": 1_000, "steps": 50, "logical_batches": "990"}, 990),
    ],
)
def test_no_row_has_a_use_for_larger_batches_than_the_search_tries(
    asked: dict[str, Any], largest_logical: int
) -> None:
    """Every batch that may be weighed has the same row as if a million samples fitted."""
    plan = PlanConfig(**asked)
    most = largest_useful_batch(plan)
    assert max(plan.possible_batches) == largest_logical
    each = largest_logical / plan.num_devices
    assert each <= most < each + 6 * each**0.5 + 64
    for batch in plan.possible_batches:
        rate, steps = batch / plan.dataset_size, plan.num_steps(batch)
        drawn = dataclasses.replace(noise(batch), sample_rate=rate, steps=steps)
        tried, huge = (option_of(Fitted(CONFIG, size, COST), drawn, plan) for size in (most, 2**20))
        assert tried is not None
        assert huge is not None
        assert dataclasses.replace(tried, largest=huge.largest) == huge


def test_devices_share_the_batch_and_the_price_is_for_all() -> None:
    plan = dataclasses.replace(PLAN, num_devices=4, price_per_device_hour=2.0)
    found = option_with(Fitted(CONFIG, 64, COST), 256, plan)
    assert found.hours == pytest.approx(found.step)  # 3,600 steps
    assert found.hours is not None
    assert found.cost == pytest.approx(found.hours.times(8))


def test_the_smallest_physical_batch_near_the_best_throughput_is_taken() -> None:
    """Each physical batch takes 10 ms and each sample 1 ms: 490 samples have 98 % of the best throughput.
    Measured steps tell of their own sizes, and up to twice the largest.
    """
    assert knee_of(((1, 0.011), (2048, 2.058))) == 512
    assert knee_of(((1, 0.011), (4, 0.014))) == 8
    assert knee_of(((1, 0.001), (4, 0.004))) == 1
    assert knee_of(((3, 0.003), (4, 0.004))) == 3
    assert knee_of(((2000, 2.01), (2048, 2.058))) == 2000


def knee_of(forward: tuple[tuple[int, float], ...]) -> int:
    """The physical batch that is chosen, by the seconds of forward at some batches."""
    at = tuple((batch, {"forward": seconds, "noise": 0.0}) for batch, seconds in forward)
    measured = MeasuredSteps(at, ("run",), has_ranks=False)
    return option_with(Fitted(ON_CPU, 4096, measured.cost(ON_CPU, COST), measured), 4096).physical_batch


def of(
    trainer: str, hours: float | None, largest: int = 8, basis: str = PREDICTED, *, logical_batch: int = 100
) -> TrainingOption:
    step = None if hours is None else TimeRange(hours, hours, hours)  # of 3,600 steps
    return TrainingOption(trainer, noise(logical_batch), largest, largest, 1.0, 1, step, basis, 1)


def option(logical_batch: int, hours: float | None) -> TrainingOption:
    return of("DPSGDTrainer", hours, basis=MEASURED, logical_batch=logical_batch)


def test_the_front_has_no_option_that_another_beats_in_both() -> None:
    cheap, dear, noisy, unknown = option(64, 1.0), option(256, 2.0), option(32, 1.5), option(512, None)
    assert front([noisy, dear, cheap, unknown]) == [cheap, dear]


def test_less_noise_is_worth_a_price_up_to_its_square() -> None:
    cheap = option(100, 1.0)
    assert recommended([cheap, option(200, 3.9)]).noise.logical_batch == 200  # type: ignore[union-attr]
    assert recommended([cheap, option(200, 4.1)]).noise.logical_batch == 100  # type: ignore[union-attr]
    assert recommended([option(100, None)]) is None


def test_bounds_that_are_too_close_leave_it_to_what_was_measured_elsewhere() -> None:
    ghost = of("DPGhostClippingTrainer", 6.65, 15)
    near, far = of("DPBookKeepingTrainer", 7.05, 21), of("DPBookKeepingTrainer", 8.1, 21)
    assert recommended([ghost, near]) == near
    assert recommended([ghost, far]) == ghost
    assert close_to_best(noise(100), [ghost, near]) == [ghost, near]
    unknown = of("AnotherTrainer", 6.6, 30)
    assert recommended([unknown, ghost]) == ghost


def test_measured_times_that_are_too_close_leave_it_to_the_memory() -> None:
    bk = of("DPBookKeepingTrainer", 1.0, 16, MEASURED)
    near, far = (of("DPMixedGhostTrainer", hours, 32, MEASURED) for hours in (1.09, 1.11))
    assert recommended([bk, near]) == near
    assert recommended([bk, far]) == bk


def run(step_s: float, trainer: str = "DPSGDTrainer", **settings: Any) -> Result:
    """A run whose step was predicted to take a second."""
    found = result(trainer, step_s=step_s, moved=[("forward", "gemm", 1)], **settings)
    assert found.record is not None
    assert found.record.ledger is not None
    found.record.ledger.traffic[0].predicted_s = 1.0
    return found


REACHED_AT = run(1.0).config


def test_the_share_is_the_predicted_time_over_the_median() -> None:
    found = Reached.of({"one": run(4.0), "two": run(2.0)}, REACHED_AT)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.25, 0.5))
    assert found.names == ("one", "two")


def test_runs_of_the_same_model_tell_most() -> None:
    alike = {"a": run(4.0), "b": run(3.0)}
    other = {"c": run(2.0, model_size="small")}
    found = Reached.of(alike | other, REACHED_AT)
    assert found is not None
    assert found.names == ("a", "b")
    found = Reached.of({"a": run(4.0)} | other, REACHED_AT)
    assert found is not None
    assert found.names == ("a", "c")


@pytest.mark.parametrize(
    "other",
    [
        run(4.0, "StandardTrainer"),
        run(4.0, precision="bf16"),
        run(4.0, weights={"bf16": 1}),
        result("DPSGDTrainer", step_s=1.0),  # no ledger
        dataclasses.replace(run(4.0), record=None),
    ],
    ids=["standard", "precision", "weights", "no ledger", "no record"],
)
def test_other_runs_tell_nothing(other: Result) -> None:
    assert Reached.of({"one": other, "two": other}, REACHED_AT, "fp32") is None
    assert Reached.of({"one": run(4.0), "two": other}, REACHED_AT, "fp32") is None, "one is no range"

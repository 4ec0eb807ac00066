"""A plan as plain data: the ways to train, with noise, memory, time and cost, and the recommended way."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpprof.config.entry_points import PlanConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.closeness import doubt_of, elsewhere, too_close
from dpprof.findings.plan.timing import MeasuredSteps, Reached
from dpprof.privacy.guarantee import Guarantee
from dpprof.privacy.physical_batches import (
    expected_largest_draw,
    expected_physical_batches,
    most_physical_batches,
)
from dpprof.record.figures.capacity import ROUND_UNIT, round_batch
from dpprof.record.figures.cost import StepCost
from dpprof.record.figures.step import BASES, MEASURED, UNKNOWN, LogicalStep, TimeRange
from dpprof.record.record import Record

_INPUTS = "inputs"
_SECONDS_PER_HOUR = 3600
# The smallest physical batch that reaches this share of the best throughput is preferred.
_NEARLY_BEST = 0.98
# Chance that a training ever draws a larger batch.
TAIL = 1e-3
# A price that is r times as high must lower the noise by at least a factor of r to this power.
_WORTH = 0.5


@dataclass(frozen=True)
class BatchNoise:
    """A logical batch with its sample rate, its steps, and the noise by each accountant."""

    logical_batch: int
    sample_rate: float
    steps: int
    epochs: float
    guarantee: Guarantee
    by_rdp: Guarantee | None
    why_not_rdp: str = ""

    @property
    def over_batch(self) -> float:
        """Standard deviation of the noise in the mean gradient over the clipping norm."""
        return self.guarantee.noise_multiplier / self.logical_batch


@dataclass(frozen=True)
class Fitted:
    """A trainer's largest physical batch on a device (0: none), the bytes it needs, and its step's cost.

    `cost` has measured times if there are `measured` steps, else predicted ones.
    `weights_dtype` are the types of the model's weights in words; empty if not known. `unlike` are the names
    of measured runs that do not count, as their weights have another type. `is_at_least` means that larger
    batches may fit too: none was tried.
    """

    config: ExperimentConfig
    largest: int
    cost: StepCost | None = None
    measured: MeasuredSteps | None = None
    needed_bytes: int | None = None
    peak_phase: str | None = None
    folders: tuple[str, ...] = ()
    failure: str = ""
    weights_dtype: str = ""
    unlike: tuple[str, ...] = ()
    is_at_least: bool = False

    def corrected(self, reached: Reached) -> "Fitted":
        """Return it with predicted times as earlier runs correct them; measured ones stay."""
        if self.cost is None or self.measured is not None:
            return self
        return dataclasses.replace(self, cost=self.cost.corrected(reached.low, reached.high))


@dataclass(frozen=True)
class TrainingOption:
    """A way to train, as seen by one of several equal devices.

    `largest` is the physical batch that fits (`is_at_least`: or a larger one), `physical_batch` the most to
    use. `num_physical` is their expected number in a logical step on the device that draws the most, as the
    others wait for it. Any device exceeds `most_physical` in a whole training with a chance of at most
    `TAIL`. `step` is the time of a logical step, None if it is not known.
    """

    trainer: str
    noise: BatchNoise
    largest: int
    physical_batch: int
    num_physical: float
    most_physical: int
    step: TimeRange | None
    basis: str
    num_devices: int
    price_per_device_hour: float = 0.0
    is_at_least: bool = False

    @property
    def hours(self) -> TimeRange | None:
        """Hours of the whole training."""
        return self.step and self.step.times(self.noise.steps / _SECONDS_PER_HOUR)

    @property
    def device_hours(self) -> TimeRange | None:
        """Hours of all devices together."""
        return self.hours and self.hours.times(self.num_devices)

    @property
    def cost(self) -> TimeRange | None:
        """Price of the whole training; None if no price is given, or its time is not known."""
        hours, price = self.device_hours, self.price_per_device_hour
        return hours.times(price) if hours is not None and price else None

    @property
    def price(self) -> float | None:
        """Price for comparisons: hours, as all options have the same devices."""
        return self.hours and self.hours.seconds


def option_of(fitted: Fitted, noise: BatchNoise, plan: PlanConfig) -> TrainingOption | None:
    """Return a trainer with a logical batch as an option; None if no batch fits."""
    if not fitted.largest or fitted.cost is None:
        return None
    limit = min(round_batch(fitted.largest), _most_physical(plan, noise.sample_rate, noise.steps, 1))
    physical = _knee(fitted, noise, plan, limit) if fitted.measured else limit
    average, num_physical = _physical_batches(noise, plan, physical)
    step = fitted.cost.logical(average, num_physical)
    return TrainingOption(
        trainer=fitted.config.trainer,
        noise=noise,
        largest=fitted.largest,
        physical_batch=physical,
        num_physical=num_physical,
        most_physical=_most_physical(plan, noise.sample_rate, noise.steps, physical),
        step=step.time,
        basis=step.time_basis,
        num_devices=plan.num_devices,
        price_per_device_hour=plan.price_per_device_hour,
        is_at_least=fitted.is_at_least,
    )


def largest_useful_batch(plan: PlanConfig) -> int:
    """Return the largest physical batch that a plan has a use for: it takes any step's draw, also rounded."""
    most_drawn = max(
        _most_physical(plan, batch / plan.dataset_size, plan.num_steps(batch), 1)
        for batch in plan.possible_batches
    )
    return math.ceil(most_drawn / ROUND_UNIT) * ROUND_UNIT


def _most_physical(plan: PlanConfig, sample_rate: float, steps: int, size: int) -> int:
    """Return the most physical batches of this size that any device draws in a step, but for `TAIL`."""
    share = plan.dataset_size // plan.num_devices
    return most_physical_batches(share, sample_rate, size, steps * plan.num_devices, TAIL)


def _physical_batches(noise: BatchNoise, plan: PlanConfig, size: int) -> tuple[float, float]:
    """Return mean size and number of a step's physical batches, on the device that draws the most."""
    share = plan.dataset_size // plan.num_devices
    num = expected_physical_batches(share, noise.sample_rate, size, plan.num_devices)
    return expected_largest_draw(share, noise.sample_rate, plan.num_devices) / num, num


def _knee(fitted: Fitted, noise: BatchNoise, plan: PlanConfig, limit: int) -> int:
    """Return the smallest physical batch within 2 % of the best throughput, where measured steps tell."""
    cost, measured = fitted.cost, fitted.measured
    assert cost is not None, "checked before"
    assert measured is not None, "checked before"

    def seconds(size: int) -> float:
        time = cost.logical(*_physical_batches(noise, plan, size)).time
        return math.inf if time is None else time.seconds

    least, most = (min(size, limit) for size in measured.told)
    sizes: list[int] = sorted(
        {least, most, *(2**i for i in range(most.bit_length()) if least <= 2**i <= most)}
    )
    times = {size: seconds(size) for size in sizes}
    best = min(times.values())
    return min(size for size in sizes if times[size] * _NEARLY_BEST <= best)


def front(options: Sequence[TrainingOption]) -> list[TrainingOption]:
    """Return the Pareto front in price and noise, cheapest first; options without a price are left out."""
    known = sorted(
        (one for one in options if one.price is not None),
        key=lambda one: (one.price or 0.0, one.noise.over_batch),
    )
    found: list[TrainingOption] = []
    for one in known:
        if not found or one.noise.over_batch < found[-1].noise.over_batch:
            found.append(one)
    return found


def recommended(options: Sequence[TrainingOption]) -> TrainingOption | None:
    """Return the dearest option on the front whose lower noise is worth its price.

    Twice the price must lower the noise by at least the square root of two, where larger batches stop paying
    (De et al. 2022). If trainers are too close to call, the largest physical batch wins; with time bounds
    alone, the trainer that was fastest elsewhere.
    """
    chosen: TrainingOption | None = None
    for one in front(options):
        if chosen is None or _is_worth(one, chosen):
            chosen = one
    return chosen and min(close_to_best(chosen.noise, options), key=_in_doubt)


def close_to_best(noise: BatchNoise, options: Sequence[TrainingOption]) -> list[TrainingOption]:
    """Return a logical batch's options whose times cannot be told from the fastest, which is included."""
    alike = [one for one in options if one.noise == noise and one.price is not None]
    return too_close(alike, lambda one: one.price or 0.0, doubt_of(alike[0].basis))


def _in_doubt(one: TrainingOption) -> tuple[float, float]:
    """Return the sort key between options that are too close to call."""
    if one.basis == MEASURED:
        return -one.largest, one.price or math.inf
    return elsewhere(one.trainer), -one.largest


def _is_worth(one: TrainingOption, than: TrainingOption) -> bool:
    dearer = (one.price or 0.0) / (than.price or math.inf)
    return bool(than.noise.over_batch / one.noise.over_batch >= dearer**_WORTH)


@dataclass(frozen=True)
class PlanData:
    """A plan of the `fitted` trainers with each logical batch.

    `peak_bytes` is the allocator's expected peak in the row to begin with, by the `estimate` in that folder;
    `step` is what that step takes.
    `advice` says what would make a step fit where none does.
    """

    name: str
    asked: PlanConfig
    noises: Sequence[BatchNoise]
    fitted: Sequence[Fitted]
    left_out: Mapping[str, str]
    reached: Reached | None = None
    peak_bytes: int | None = None
    estimate: str = ""
    advice: str = ""
    step: LogicalStep | None = None

    @property
    def config(self) -> ExperimentConfig:
        """Experiment of the first trainer: its model and device are those of all."""
        return self.fitted[0].config

    @property
    def weights_dtype(self) -> str:
        """Types of the model's weights in words; empty if not known."""
        return next((one.weights_dtype for one in self.fitted if one.weights_dtype), "")

    @property
    def delta(self) -> float:
        """Delta of every row."""
        return self.noises[0].guarantee.delta

    @cached_property
    def options(self) -> list[TrainingOption]:
        """Each trainer that fits with each logical batch."""
        made = [option_of(one, noise, self.asked) for noise in self.noises for one in self.fitted]
        return [option for option in made if option is not None]

    @property
    def front(self) -> list[TrainingOption]:
        """Pareto front in price and noise, cheapest first."""
        return front(self.comparable)

    @property
    def comparable(self) -> list[TrainingOption]:
        """Options whose times have the best basis; a predicted time and a measured one do not compare."""
        found = {option.basis for option in self.options}
        best = next((basis for basis in BASES if basis in found), UNKNOWN)
        return [option for option in self.options if option.basis == best]

    @property
    def recommended(self) -> TrainingOption | None:
        """Row to begin with, among those with enough steps."""
        return recommended([one for one in self.comparable if one.noise.steps >= self.enough_steps])

    @property
    def enough_steps(self) -> int:
        """Steps that a row needs to be recommended: `min_steps`, or the most of any row if that is less."""
        return min(self.asked.min_steps, max((one.noise.steps for one in self.comparable), default=0))

    @property
    def next_best(self) -> TrainingOption | None:
        """Row to begin with where no time is known, and thus none is recommended.

        Of the batches with enough steps the one with the least noise in the mean gradient, and of its
        trainers the one that was the fastest elsewhere.
        """
        able = [one for one in self.comparable if one.noise.steps >= self.enough_steps]
        if self.recommended is not None or not able:
            return None
        return min(able, key=lambda one: (one.noise.over_batch, *_in_doubt(one)))

    @property
    def is_largest(self) -> bool:
        """True if no larger logical batch than the recommended one was weighed."""
        one = self.recommended
        return one is not None and one.noise.logical_batch == max(n.logical_batch for n in self.noises)

    @property
    def close(self) -> list[TrainingOption]:
        """Recommended row and those whose times cannot be told from it; empty without such."""
        one = self.recommended
        found = [] if one is None else close_to_best(one.noise, self.comparable)
        return sorted(found, key=lambda other: other is not one) if len(found) > 1 else []

    def prediction(self, one: TrainingOption) -> tuple[ExperimentConfig, LogicalStep]:
        """Return one logical step of a row as an experiment that can be measured, and what it takes.

        It has the expected number of physical batches, all full; drawn ones vary, as in the row's own time.
        """
        fitted = next(f for f in self.fitted if f.config.trainer == one.trainer)
        assert fitted.cost is not None, "it fits"
        batch, num_physical = one.physical_batch, max(1, round(one.num_physical))
        config = dataclasses.replace(
            fitted.config,
            batch_size=batch,
            accumulation_steps=num_physical,
            noise_multiplier=one.noise.guarantee.noise_multiplier,
        )
        return config, fitted.cost.logical(batch, num_physical)


def peak_with_more_batches(estimate: Record, estimated: int, wanted: int) -> int | None:
    """Return the allocator's peak of a logical step with `wanted` physical batches instead of `estimated`.

    A measured step holds the inputs of all its batches; from two batches on, nothing else grows.
    """
    peak, ledger = estimate.memory.peak_allocated, estimate.ledger
    if peak is None or ledger is None:
        return None
    return peak + ledger.at_peak.get(_INPUTS, 0) // estimated * (wanted - estimated)

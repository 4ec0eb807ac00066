"""The alternatives of a plan: a trainer and a logical batch, with noise, memory, time and cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.plan import PlanConfig
from dpprof.figures.plan.reached import Reached
from dpprof.figures.plan.step_cost import StepCost
from dpprof.figures.plan.timing import MeasuredSteps, Seconds, logical_step
from dpprof.privacy.guarantee import Guarantee
from dpprof.privacy.physical_batches import (
    expected_largest_draw,
    expected_physical_batches,
    most_physical_batches,
)

_SECONDS_PER_HOUR = 3600
# A smaller physical batch is preferred that reaches this share of the best throughput.
_NEARLY_BEST = 0.98
# The chance that a training ever draws a larger batch.
TAIL = 1e-3
# A row with less noise is worth its cost if the noise falls by at least this power of what the cost rises by.
_WORTH = 0.5


@dataclass(frozen=True)
class Noise:
    """What a logical batch asks for: its sample rate and steps, and the noise by each accountant.

    `over_batch` is the standard deviation of the noise in the mean gradient, over the clipping norm.
    """

    logical_batch: int
    sample_rate: float
    steps: int
    epochs: float
    guarantee: Guarantee
    by_rdp: Guarantee | None
    why_not_rdp: str = ""

    @property
    def over_batch(self) -> float:
        """The noise that training feels: it compares across batches."""
        return self.guarantee.noise_multiplier / self.logical_batch


@dataclass(frozen=True)
class Fitted:
    """What was found of one trainer: the largest physical batch of a device (0: none), the bytes that it
    needs and in which phase, the cost of its step, and its measured steps if there are any. `folders` are
    those of the estimates behind it. `failure` says why there is no answer.
    """

    config: ExperimentConfig
    largest: int
    cost: StepCost | None = None
    measured: MeasuredSteps | None = None
    needed_bytes: int | None = None
    peak_phase: str | None = None
    folders: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class Option:
    """A way to train: what one of several devices does.

    `largest` is what its memory holds, `physical_batch` the most that it is given at once. `num_physical` are
    the physical batches of a logical step, expected of the device that draws the most: the others wait for
    it. `most_physical` is exceeded in a whole training, by any device, with a chance of `TAIL` at most.
    `step` is a logical step; `hours` are those of the training.
    """

    trainer: str
    noise: Noise
    largest: int
    physical_batch: int
    num_physical: float
    most_physical: int
    step: Seconds
    hours: Seconds
    cost: Seconds | None
    num_devices: int

    @property
    def device_hours(self) -> Seconds:
        """Hours of all devices together."""
        return self.hours.times(self.num_devices)

    @property
    def price(self) -> float | None:
        """What stands for its cost: time, as all options have the same devices."""
        return self.hours.middle


def option_of(
    fitted: Fitted, noise: Noise, plan: PlanConfig, reached: Reached | None = None
) -> Option | None:
    """A trainer with a logical batch; None if no batch fits. `reached` is what share of the device's rates
    steps reach, if that is known.
    """
    if not fitted.largest or fitted.cost is None:
        return None
    share = plan.dataset_size // plan.num_devices
    num_draws = noise.steps * plan.num_devices
    limit = min(fitted.largest, most_physical_batches(share, noise.sample_rate, 1, num_draws, TAIL))
    physical = _knee(fitted, noise, plan, limit) if fitted.measured else limit
    average, num_physical = _physical_batches(noise, plan, physical)
    step = logical_step(fitted.config, fitted.cost, fitted.measured, reached, average, num_physical)
    hours = step.times(noise.steps / _SECONDS_PER_HOUR)
    price = plan.price_per_device_hour
    return Option(
        trainer=fitted.config.trainer,
        noise=noise,
        largest=fitted.largest,
        physical_batch=physical,
        num_physical=num_physical,
        most_physical=most_physical_batches(share, noise.sample_rate, physical, num_draws, TAIL),
        step=step,
        hours=hours,
        cost=hours.times(plan.num_devices * price) if price else None,
        num_devices=plan.num_devices,
    )


def _physical_batches(noise: Noise, plan: PlanConfig, size: int) -> tuple[float, float]:
    """The average physical batch of a logical step, and how many there are, on the device that draws the
    most.
    """
    share = plan.dataset_size // plan.num_devices
    num = expected_physical_batches(share, noise.sample_rate, size, plan.num_devices)
    return expected_largest_draw(share, noise.sample_rate, plan.num_devices) / num, num


def _knee(fitted: Fitted, noise: Noise, plan: PlanConfig, limit: int) -> int:
    """The smallest physical batch within 2 % of the best throughput, among those of which measured steps
    tell.
    """
    cost, measured = fitted.cost, fitted.measured
    assert cost is not None, "checked before"
    assert measured is not None, "checked before"

    def seconds(size: int) -> float:
        average, num = _physical_batches(noise, plan, size)
        return logical_step(fitted.config, cost, measured, None, average, num).middle or math.inf

    least, most = (min(size, limit) for size in measured.told)
    sizes: list[int] = sorted(
        {least, most, *(2**i for i in range(most.bit_length()) if least <= 2**i <= most)}
    )
    times = {size: seconds(size) for size in sizes}
    best = min(times.values())
    return min(size for size in sizes if times[size] * _NEARLY_BEST <= best)


def front(options: Sequence[Option]) -> list[Option]:
    """Those than which no other has both less noise and a lower price, the cheapest first; of options whose
    time is not known none.
    """
    known = sorted(
        (one for one in options if one.price is not None),
        key=lambda one: (one.price or 0.0, one.noise.over_batch),
    )
    found: list[Option] = []
    for one in known:
        if not found or one.noise.over_batch < found[-1].noise.over_batch:
            found.append(one)
    return found


def recommended(options: Sequence[Option]) -> Option | None:
    """From the cheapest on, the last one on the front whose lower noise is worth its price: twice the price
    must lower the noise at least by the root of two. Larger batches stop to pay there (De et al. 2022).
    """
    chosen: Option | None = None
    for one in front(options):
        if chosen is None or _is_worth(one, chosen):
            chosen = one
    return chosen


def _is_worth(one: Option, than: Option) -> bool:
    dearer = (one.price or 0.0) / (than.price or math.inf)
    return bool(than.noise.over_batch / one.noise.over_batch >= dearer**_WORTH)

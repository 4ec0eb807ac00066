"""A plan as plain data: the ways to train, the Pareto front, and the recommended way."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpprof.config.entry_points import PlanConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.plan.options import (
    BatchNoise,
    Fitted,
    TrainingOption,
    front,
    option_of,
    recommended,
    too_close,
)
from dpprof.findings.plan.timing import BASES, UNKNOWN, Reached, Seconds, logical_step
from dpprof.record.record import Record

_INPUTS = "inputs"


@dataclass(frozen=True)
class PlanData:
    """A plan. `options` are the `fitted` trainers that fit with each logical batch.

    `peak_bytes` is the allocator's expected peak in the recommended row, by the `estimate` in that folder.
    `advice` says what would make a step fit where none does.
    """

    name: str
    asked: PlanConfig
    config: ExperimentConfig
    delta: float
    noises: Sequence[BatchNoise]
    fitted: Sequence[Fitted]
    options: Sequence[TrainingOption]
    left_out: Mapping[str, str]
    reached: Reached | None = None
    peak_bytes: int | None = None
    estimate: str = ""
    advice: str = ""

    @property
    def front(self) -> list[TrainingOption]:
        """Pareto front in price and noise, cheapest first."""
        return front(self.comparable)

    @property
    def comparable(self) -> list[TrainingOption]:
        """Options whose times have the best basis; a least time and a measured one do not compare."""
        found = {option.step.basis for option in self.options}
        best = next((basis for basis in BASES if basis in found), UNKNOWN)
        return [option for option in self.options if option.step.basis == best]

    @property
    def recommended(self) -> TrainingOption | None:
        """Row to begin with, among those with enough steps."""
        return recommended([one for one in self.comparable if one.noise.steps >= self.enough_steps])

    @property
    def enough_steps(self) -> int:
        """Steps that a row needs to be recommended: `min_steps`, or the most of any row if that is less."""
        return min(self.asked.min_steps, max((one.noise.steps for one in self.comparable), default=0))

    @property
    def is_largest(self) -> bool:
        """True if no larger logical batch than the recommended one was weighed."""
        one = self.recommended
        return one is not None and one.noise.logical_batch == max(n.logical_batch for n in self.noises)

    @property
    def close(self) -> list[TrainingOption]:
        """Recommended row and those whose times cannot be told from it; empty without such."""
        one = self.recommended
        found = [] if one is None else too_close(one.noise, self.comparable)
        return sorted(found, key=lambda other: other is not one) if len(found) > 1 else []

    @property
    def prediction(self) -> "Prediction | None":
        """Recommended row as an experiment."""
        one = self.recommended
        if one is None:
            return None
        fitted = next(f for f in self.fitted if f.config.trainer == one.trainer)
        return _prediction(one, fitted, self.reached)


@dataclass(frozen=True)
class Prediction:
    """One logical step of a row as an experiment that can be measured, and its time.

    It has the expected number of physical batches, all full; drawn batches vary, as in the row's own time.
    """

    config: ExperimentConfig
    step: Seconds


def _prediction(option: TrainingOption, fitted: Fitted, reached: Reached | None) -> Prediction:
    assert fitted.cost is not None, "it fits"
    num_physical = max(1, round(option.num_physical))
    config = dataclasses.replace(
        fitted.config,
        batch_size=option.physical_batch,
        accumulation_steps=num_physical,
        noise_multiplier=option.noise.guarantee.noise_multiplier,
    )
    step = logical_step(config, fitted.cost, fitted.measured, reached, option.physical_batch, num_physical)
    return Prediction(config, step)


def peak_with_more_batches(estimate: Record, estimated: int, wanted: int) -> int | None:
    """Return the allocator's peak of a logical step with `wanted` physical batches instead of `estimated`.

    A measured step holds the inputs of all its batches; from two batches on, nothing else grows.
    """
    peak, ledger = estimate.memory.peak_allocated, estimate.ledger
    if peak is None or ledger is None:
        return None
    return peak + ledger.at_peak.get(_INPUTS, 0) // estimated * (wanted - estimated)


def compute(
    name: str,
    asked: PlanConfig,
    noises: Sequence[BatchNoise],
    fitted: Sequence[Fitted],
    left_out: Mapping[str, str],
    reached: Reached | None = None,
) -> PlanData:
    """Return the plan of these trainers and logical batches."""
    options = [option_of(one, noise, asked, reached) for noise in noises for one in fitted]
    return PlanData(
        name=name,
        asked=asked,
        config=fitted[0].config,
        delta=noises[0].guarantee.delta,
        noises=noises,
        fitted=fitted,
        options=[option for option in options if option is not None],
        left_out=left_out,
        reached=reached,
    )

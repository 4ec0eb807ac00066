"""What a plan says of one logical step of a row, as an experiment that can be measured."""

import dataclasses
from dataclasses import dataclass
from typing import Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.plan.options import Fitted, Option
from dpprof.figures.plan.reached import Reached
from dpprof.figures.plan.timing import Seconds, logical_step
from dpprof.record.record import Record

_INPUTS = "inputs"


@dataclass(frozen=True)
class Prediction:
    """An experiment with as many physical batches as the row expects, all of them full, and the time of its
    step. Drawn batches vary: the row's own time is that of their average.
    """

    config: ExperimentConfig
    step: Seconds

    @classmethod
    def of(cls, option: Option, fitted: Fitted, reached: Reached | None) -> Self:
        """Of a row and what was found of its trainer."""
        assert fitted.cost is not None, "it fits"
        num_physical = max(1, round(option.num_physical))
        config = dataclasses.replace(
            fitted.config,
            batch_size=option.physical_batch,
            accumulation_steps=num_physical,
            noise_multiplier=option.noise.guarantee.noise_multiplier,
        )
        step = logical_step(
            config, fitted.cost, fitted.measured, reached, option.physical_batch, num_physical
        )
        return cls(config, step)


def peak_with_more_batches(estimate: Record, estimated: int, wanted: int) -> int | None:
    """The allocator's peak of a logical step with more physical batches than were estimated, two or more: a
    measured step holds all of its batches, and is otherwise the same.
    """
    peak, ledger = estimate.memory.peak_allocated, estimate.ledger
    if peak is None or ledger is None:
        return None
    return peak + ledger.at_peak.get(_INPUTS, 0) // estimated * (wanted - estimated)

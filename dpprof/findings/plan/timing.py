"""Costs of steps that rest on measurements: on measured steps, or on how far predictions were off."""

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.cost import Affine, PhaseCost, StepCost
from dpprof.record.figures.results import FINISHED, Result
from dpprof.record.figures.step import MEASURED, LogicalStep, link_of
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.precision import may_be_alike
from dpprof.vocabulary.trainers import TRAINERS, trainer_info

# Time of a measured step outside its phases.
_BETWEEN = "between"


@dataclass(frozen=True)
class Reached:
    """Lowest and highest share that predicted times are of measured ones, and the runs that show it."""

    low: float
    high: float
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, results: Mapping[str, Result], config: ExperimentConfig, weights_dtype: str = ""
    ) -> "Reached | None":
        """Build from finished runs on the device with a prediction: those of private trainers on one rank.

        Two or more runs of the same model count alone. None for fewer than two in all: one is no range.
        """
        told = {
            name: _share(result, config.precision)
            for name, result in results.items()
            if may_be_alike(result.weights_dtype, weights_dtype)
        }
        shares = {name: share for name, share in told.items() if share is not None}
        model = _model(config)
        alike = {name: share for name, share in shares.items() if _model(results[name].config) == model}
        shares = alike if len(alike) > 1 else shares
        return cls(min(shares.values()), max(shares.values()), tuple(shares)) if len(shares) > 1 else None


def _model(config: ExperimentConfig) -> tuple[str, str]:
    return config.workload, config.model_title


def _share(result: Result, precision: str) -> float | None:
    """Return a step's predicted time over its median, if the run tells of private training on one rank."""
    config, record, info = result.config, result.record, TRAINERS.get(result.config.trainer)
    if result.status != FINISHED or config.is_estimate or config.poisson_sampling:
        return None
    if config.world_size > 1 or config.precision != precision or info is None or not info.is_private:
        return None
    if record is None or record.ledger is None or not record.step_s:
        return None
    predicted = LogicalStep.of(config, record.ledger).time
    return predicted and predicted.seconds / statistics.median(record.step_s)


@dataclass(frozen=True)
class MeasuredSteps:
    """Median seconds of each phase at some batch sizes of one trainer, in order."""

    at: tuple[tuple[int, Mapping[str, float]], ...]
    names: tuple[str, ...]
    has_ranks: bool

    @classmethod
    def of(cls, results: Mapping[str, Result]) -> "MeasuredSteps | None":
        """Build from finished runs that differ only in the batch; those on several ranks replace others."""
        of_ranks = {name: one for name, one in results.items() if one.config.world_size > 1}
        results = of_ranks or results
        alike = grouped(results.values(), lambda result: result.config.batch_size)
        if not alike:
            return None
        found = {batch: list(map(_phases_s, of_batch)) for batch, of_batch in alike.items()}
        names = dict.fromkeys(name for each in found.values() for one in each for name in one)
        medians = tuple(
            (batch, {name: statistics.median(one.get(name, 0.0) for one in each) for name in names})
            for batch, each in sorted(found.items())
        )
        return cls(medians, tuple(sorted(results)), bool(of_ranks))

    @property
    def told(self) -> tuple[int, int]:
        """Batch sizes covered: from the smallest that was measured to twice the largest.

        Beyond that, time need not grow as before: caches overflow, or a device fills up.
        """
        return self.at[0][0], 2 * self.at[-1][0]

    def cost(self, config: ExperimentConfig, predicted: StepCost) -> StepCost:
        """Return a cost with measured times: on the measured line, or growing from one size as predicted."""
        (first, at_first), *others = self.at
        each_batch = trainer_info(config.trainer).each_batch
        phases = {name: one.measured(Affine(), is_each=False) for name, one in predicted.phases.items()}
        for name, seconds in at_first.items():
            cost = predicted.phases.get(name, PhaseCost())
            line = cost.growth(first).times(seconds)
            if others:
                line = Affine.through([(batch, at.get(name, 0.0)) for batch, at in self.at])
            phases[name] = cost.measured(line, is_each=name in each_batch)
        link = link_of(config) if config.world_size > 1 and not self.has_ranks else 0.0
        return dataclasses.replace(predicted, phases=phases, basis=MEASURED, link=link)


def _phases_s(result: Result) -> dict[str, float]:
    assert result.record is not None, "it finished"
    record = result.record
    phases = {name: statistics.median(seconds) for name, seconds in record.phase_s.items()}
    return phases | {_BETWEEN: max(0.0, statistics.median(record.step_s) - sum(phases.values()))}

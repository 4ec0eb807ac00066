"""How long a logical step takes: from measured steps, from least times and a share of them, or only at least.

A time that rests on assumptions is a range, never a single number.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import device_of, in_logical_step, link_of
from dpprof.figures.plan.reached import Reached
from dpprof.figures.plan.step_cost import Affine, StepCost
from dpprof.figures.results import Result

MEASURED, EFFICIENCY, FLOOR, UNKNOWN = "measured", "efficiency", "floor", "unknown"
# What a measured step takes outside its phases.
_BETWEEN = "between"


@dataclass(frozen=True)
class Seconds:
    """Between `least` and `most`; each is None where it is not known. `basis` says what they rest on."""

    least: float | None
    most: float | None
    basis: str

    def times(self, factor: float) -> "Seconds":
        """As often, or as long."""
        least, most = (None if each is None else factor * each for each in (self.least, self.most))
        return Seconds(least, most, self.basis)

    @property
    def middle(self) -> float | None:
        """What stands for it in comparisons: the mean of a range, or the least time."""
        if self.least is None or self.most is None:
            return self.least
        return (self.least + self.most) / 2


@dataclass(frozen=True)
class MeasuredSteps:
    """Median seconds of each phase at some batch sizes of one trainer, in order."""

    at: tuple[tuple[int, Mapping[str, float]], ...]
    names: tuple[str, ...]
    has_ranks: bool

    @classmethod
    def of(cls, results: Mapping[str, Result]) -> "MeasuredSteps | None":
        """From finished runs, by name, that are alike but for the batch; None if there are none. Those of
        several ranks tell more than those of one, and count alone.
        """
        of_ranks = {name: one for name, one in results.items() if one.config.world_size > 1}
        results = of_ranks or results
        found: dict[int, list[dict[str, float]]] = {}
        for result in results.values():
            found.setdefault(result.config.batch_size, []).append(_phases_s(result))
        if not found:
            return None
        names = dict.fromkeys(name for each in found.values() for one in each for name in one)
        medians = tuple(
            (batch, {name: statistics.median(one.get(name, 0.0) for one in each) for name in names})
            for batch, each in sorted(found.items())
        )
        return cls(medians, tuple(sorted(results)), bool(of_ranks))

    @property
    def told(self) -> tuple[int, int]:
        """The smallest and the largest batch of which they tell: from the smallest that was measured to twice
        the largest. Beyond that time need not grow as it did: caches overflow, or a device fills up.
        """
        return self.at[0][0], 2 * self.at[-1][0]

    def seconds(self, cost: StepCost, batch: float) -> dict[str, float]:
        """Seconds of one occurrence of each phase: on the line through those that were measured; from a
        single size by what the ledger says grows with the batch.
        """
        (first, at_first), *others = self.at
        if not others:
            return {name: s * cost.growth(name, batch, first) for name, s in at_first.items()}
        lines = {name: Affine.through([(b, s.get(name, 0.0)) for b, s in self.at]) for name in at_first}
        return {name: max(0.0, line(batch)) for name, line in lines.items()}


def _phases_s(result: Result) -> dict[str, float]:
    assert result.record is not None, "it finished"
    record = result.record
    phases = {name: statistics.median(seconds) for name, seconds in record.phase_s.items()}
    return phases | {_BETWEEN: max(0.0, statistics.median(record.step_s) - sum(phases.values()))}


def logical_step(
    config: ExperimentConfig,
    cost: StepCost,
    measured: MeasuredSteps | None,
    reached: Reached | None,
    physical_batch: float,
    num_physical: float,
) -> Seconds:
    """Seconds of a logical step on each device, of so many physical batches of a size, on average.

    Steps measured on one rank do not tell what communication adds: at least nothing, where computation hides
    it, and at most all of the time that it takes.
    """
    sending = 0.0
    if config.world_size > 1 and (link := link_of(config)):
        sending = in_logical_step(config, cost.sending_s(link, physical_batch), num_physical)
    if measured is not None:
        taken = in_logical_step(config, measured.seconds(cost, physical_batch), num_physical)
        if config.world_size == 1 or measured.has_ranks:
            return Seconds(taken, taken, MEASURED)
        return Seconds(max(taken, sending), taken + sending, MEASURED)
    device = device_of(config)
    if device is None:
        return Seconds(None, None, UNKNOWN)
    floors = cost.floor_s(device, config.precision, physical_batch)
    least = in_logical_step(config, floors, num_physical)
    if reached is None:
        return Seconds(max(least, sending), None, FLOOR)
    return Seconds(max(least / reached.high, sending), least / reached.low + sending, EFFICIENCY)

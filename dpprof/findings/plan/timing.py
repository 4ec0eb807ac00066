"""Time of a logical step: from measured steps, from bounds and an efficiency, or predicted from operators.

A time that rests on assumptions is a range, never a single number.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.capacity import floor_s, in_logical_step, link_of, predicted_s, step_of
from dpprof.record.figures.results import FINISHED, Result
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.precision import may_be_alike
from dpprof.vocabulary.trainers import TRAINERS, trainer_info

# Bases of a time, the best first.
BASES = MEASURED, EFFICIENCY, PREDICTED, UNKNOWN = "measured", "efficiency", "predicted", "unknown"
# Time of a measured step outside its phases.
_BETWEEN = "between"


@dataclass(frozen=True)
class Affine:
    """A quantity that is `constant` + `slope` times the batch."""

    constant: float = 0.0
    slope: float = 0.0

    def __call__(self, batch: float) -> float:
        """Return the value at a batch size."""
        return self.constant + self.slope * batch

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> "Affine":
        """Return the line through the first and the last point, by batch; flat through one."""
        (first, low), (last, high) = points[0], points[-1]
        slope = (high - low) / (last - first) if last != first else 0.0
        return cls(low - slope * first, slope)


@dataclass(frozen=True)
class PhaseCost:
    """One occurrence of a phase: what it moves, multiplies, and sends as one rank, and its floor in seconds.

    It is predicted to take `seconds`, at least `least` and at most `most`: all 0 where nothing is predicted.
    """

    moved: Affine
    flops: Affine
    sent: Affine
    floor: Affine = Affine()
    seconds: Affine = Affine()
    least: Affine = Affine()
    most: Affine = Affine()


@dataclass(frozen=True)
class StepCost:
    """Cost of each phase of a trainer's step, by the samples of a physical batch on one device.

    Bytes and FLOPs are affine in the batch: two sizes give them for all.
    """

    phases: dict[str, PhaseCost]

    @classmethod
    def of(cls, estimates: Sequence[Result]) -> "StepCost":
        """Build from estimates of one trainer that differ in the batch size alone."""
        known = [
            (e.config, e.record.ledger, e.weights_dtype) for e in estimates if e.record and e.record.ledger
        ]
        by_batch = sorted(known, key=lambda one: one[0].batch_size)
        names = dict.fromkeys(name for _, ledger, _ in by_batch for name in ledger.phase_peak)
        return cls({name: _phase(name, by_batch) for name in names})

    def seconds(self, which: str, batch: float) -> dict[str, float]:
        """Return one occurrence of each phase: its `floor`, or predicted `seconds`, `least` or `most`."""
        return {name: max(0.0, getattr(cost, which)(batch)) for name, cost in self.phases.items()}

    def growth(self, name: str, batch: float, measured_at: float) -> float:
        """Return a phase's time relative to that at `measured_at`: predicted, else by FLOPs or bytes."""
        cost = self.phases.get(name)
        if cost is None:
            return 1.0
        known = (grows for grows in (cost.seconds, cost.flops) if grows(measured_at) > 0)
        grows = next(known, cost.moved)
        return grows(batch) / grows(measured_at) if grows(measured_at) > 0 else 1.0


def _phase(name: str, by_batch: list[tuple[ExperimentConfig, LedgerResult, str]]) -> PhaseCost:
    found: dict[str, list[tuple[int, float]]] = {}
    for config, ledger, weights_dtype in by_batch:
        predicted = predicted_s(config, ledger).get(name)
        times = config.accumulation_steps if name in trainer_info(config.trainer).each_batch else 1
        one = ledger.moved(by=lambda row: row.phase).get(name, Moved())
        sent = sum(row.sent for row in ledger.collectives if row.phase == name)
        each: dict[str, float] = {"moved": one.num_bytes, "flops": one.flops, "sent": sent}
        each["floor"] = floor_s(config, ledger, weights_dtype).get(name, 0.0)
        each |= predicted._asdict() if predicted else {}
        for quantity, total in each.items():
            found.setdefault(quantity, []).append((config.batch_size, total / times))
    return PhaseCost(**{quantity: Affine.through(points) for quantity, points in found.items()})


@dataclass(frozen=True)
class Reached:
    """Lowest and highest share that steps reach, of a device's rates as the user gave it, or of predictions.

    `names` are the runs that show how far predictions are off, predicted over measured time: none if the user
    gave the shares.
    """

    low: float
    high: float
    names: tuple[str, ...] = ()

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
    predicted = step_of(predicted_s(config, record.ledger))
    return predicted and predicted.seconds / statistics.median(record.step_s)


@dataclass(frozen=True)
class Seconds:
    """A time between `least` and `most`, both None if unknown, and their basis."""

    least: float | None
    most: float | None
    basis: str

    def times(self, factor: float) -> "Seconds":
        """Return the range times a factor."""
        least, most = (None if each is None else factor * each for each in (self.least, self.most))
        return Seconds(least, most, self.basis)

    @property
    def middle(self) -> float | None:
        """Value for comparisons: the mean of the range."""
        return None if self.least is None or self.most is None else (self.least + self.most) / 2


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

    def seconds(self, cost: StepCost, batch: float) -> dict[str, float]:
        """Return the seconds of each phase's occurrence, on the measured line or scaled from one size."""
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
    """Return the seconds of a logical step on each device, given the mean size and number of its batches.

    Steps measured on one rank do not show what communication adds: at least nothing, where computation hides
    it, and at most all of its time.
    """
    sending = 0.0
    if config.world_size > 1 and (link := link_of(config)):
        sent_s = {name: phase.sent(physical_batch) / (link * 1e9) for name, phase in cost.phases.items()}
        sending = in_logical_step(config, sent_s, num_physical)
    if measured is not None:
        taken = in_logical_step(config, measured.seconds(cost, physical_batch), num_physical)
        if config.world_size == 1 or measured.has_ranks:
            return Seconds(taken, taken, MEASURED)
        return Seconds(max(taken, sending), taken + sending, MEASURED)

    def in_step(which: str) -> float:
        return in_logical_step(config, cost.seconds(which, physical_batch), num_physical)

    if reached is not None and not reached.names and (floor := in_step("floor")):
        return Seconds(max(floor / reached.high, sending), floor / reached.low + sending, EFFICIENCY)
    middle = in_step("seconds")
    if not middle:
        return Seconds(None, None, UNKNOWN)
    if reached is not None and reached.names:
        return Seconds(middle / reached.high, middle / reached.low, PREDICTED)
    return Seconds(in_step("least"), in_step("most"), PREDICTED)

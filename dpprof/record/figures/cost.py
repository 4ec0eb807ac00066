"""The cost of training steps: one model for all commands, made from estimates or from measured steps.

A phase is affine in the samples of a physical batch, and in the physical batches of a logical step. An
estimate gives one point of it (`LogicalStep.of`), and several give the rest (`StepCost.of`).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.capacity import doubt_bytes, needed_bytes
from dpprof.record.figures.step import PREDICTED, Amounts, LogicalStep, TimeRange
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.trainers import trainer_info

Estimated = tuple[ExperimentConfig, LedgerResult]


@dataclass(frozen=True)
class Affine:
    """A quantity that is `constant` + `slope` times a number."""

    constant: float = 0.0
    slope: float = 0.0

    def __call__(self, at: float) -> float:
        """Return the value at a number."""
        return self.constant + self.slope * at

    def times(self, factor: float) -> "Affine":
        """Return the quantity times a factor."""
        return Affine(factor * self.constant, factor * self.slope)

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> "Affine":
        """Return the line through the first and the last point; flat through one, 0 through none."""
        if not points:
            return cls()
        (first, low), (last, high) = points[0], points[-1]
        slope = (high - low) / (last - first) if last != first else 0.0
        return cls(low - slope * first, slope)


# Affine fields of `Amounts`, by name. A field that is missing is 0.
Lines = Mapping[str, Affine]


@dataclass(frozen=True)
class PhaseCost:
    """A phase of a logical step: what it takes once, and for each physical batch, by its samples."""

    once: Lines = dataclasses.field(default_factory=dict)
    each: Lines = dataclasses.field(default_factory=dict)

    def at(self, batch: float, num_batches: float) -> Amounts:
        """Return what a logical step takes; a time that would be negative is 0."""
        found = _at(self.once, batch).plus(_at(self.each, batch).times(num_batches))
        return found._replace(**{name: max(0.0, getattr(found, name)) for name in TimeRange._fields})

    def measured(self, seconds: Affine, *, is_each: bool) -> "PhaseCost":
        """Return it with measured seconds of an occurrence in place of predicted ones."""
        timed, untimed = (dict.fromkeys(TimeRange._fields, line) for line in (seconds, Affine()))
        return PhaseCost(
            {**self.once, **(untimed if is_each else timed)}, {**self.each, **(timed if is_each else untimed)}
        )

    def corrected(self, low: float, high: float) -> "PhaseCost":
        """Return it with times of which predictions are the shares `low` to `high`."""
        factors = TimeRange((1 / low + 1 / high) / 2, 1 / high, 1 / low)._asdict()

        def scaled(lines: Lines) -> Lines:
            seconds = lines.get("seconds", Affine())
            return {**lines, **{name: seconds.times(factor) for name, factor in factors.items()}}

        return PhaseCost(scaled(self.once), scaled(self.each))

    def growth(self, measured_at: float) -> Affine:
        """Return an occurrence's time relative to that at a batch: predicted, else by FLOPs or bytes."""
        for name in ("seconds", "flops", "moved"):
            for line in (lines.get(name, Affine()) for lines in (self.once, self.each)):
                if (known := line(measured_at)) > 0:
                    return line.times(1 / known)
        return Affine(1.0)


def _through(points: Sequence[tuple[float, Amounts]]) -> Lines:
    """Return the line of each field."""
    names = Amounts._fields
    return {name: Affine.through([(at, getattr(one, name)) for at, one in points]) for name in names}


def _at(lines: Lines, batch: float) -> Amounts:
    return Amounts(**{name: line(batch) for name, line in lines.items()})


@dataclass(frozen=True)
class StepCost:
    """The cost of a trainer's step on one device, for any physical batch and any number of these.

    `peaks` are bytes of tensors by phase, `added` what is needed beside them, and `doubt` is None if nothing
    bounds it. All three are of the most physical batches that were estimated: further ones need no more.
    Between estimates, tensors are as exact as these. What the allocator adds is not affine: beyond the
    estimates, it may be far off.
    """

    phases: Mapping[str, PhaseCost]
    peaks: Mapping[str | None, Affine] = dataclasses.field(default_factory=dict)
    added: Affine = Affine()
    doubt: Affine | None = None
    basis: str = PREDICTED
    link: float = 0.0

    @classmethod
    def of(cls, estimates: Iterable[Estimated]) -> "StepCost":
        """Build from estimates of one trainer that differ in the batch, or in the number of batches, alone.

        With one number of batches, phases that every batch has count as often; with two, the difference
        tells what each further one adds.
        """
        known = sorted(estimates, key=lambda one: (one[0].accumulation_steps, one[0].estimated_batch))
        steps = [(config, LogicalStep.of(config, ledger)) for config, ledger in known]
        names = dict.fromkeys(name for _, step in steps for name in step.phases)
        num = max((config.accumulation_steps for config, _ in known), default=1)
        largest = [(config, ledger) for config, ledger in known if config.accumulation_steps == num]
        doubts = [(config.estimated_batch, doubt_bytes(ledger)) for config, ledger in largest]
        bounded = [(batch, size) for batch, size in doubts if size is not None]
        return cls(
            {name: _phase(name, steps) for name in names},
            _peaks(largest),
            Affine.through([(c.estimated_batch, needed_bytes(c, one) - one.peak) for c, one in largest]),
            Affine.through(bounded) if bounded and len(bounded) == len(doubts) else None,
        )

    def logical(self, batch: float, num_batches: float = 1.0) -> LogicalStep:
        """Return a logical step of physical batches of so many samples."""
        phases = {name: cost.at(batch, num_batches) for name, cost in self.phases.items()}
        tensors = {name: peak(batch) for name, peak in self.peaks.items()}
        highest = max(tensors, key=lambda name: tensors[name], default=None)
        in_doubt = 0.0 if self.doubt is None else self.doubt(batch)
        needed = max(tensors.values(), default=0.0) + self.added(batch) + in_doubt
        return LogicalStep(phases, self.basis, round(needed), highest, self.link)

    def corrected(self, low: float, high: float) -> "StepCost":
        """Return it with times of which predictions were the shares `low` to `high` in earlier runs."""
        phases = {name: one.corrected(low, high) for name, one in self.phases.items()}
        return dataclasses.replace(self, phases=phases)


def _phase(name: str, steps: Sequence[tuple[ExperimentConfig, LogicalStep]]) -> PhaseCost:
    points = [(config, step.phases.get(name, Amounts())) for config, step in steps]
    (first, few), (last, many) = points[0], points[-1]
    if (more := last.accumulation_steps - first.accumulation_steps) > 0:
        each = many.plus(few.times(-1)).times(1 / more)
        once = few.plus(each.times(-first.accumulation_steps))
        return PhaseCost(_through([(0, once)]), _through([(0, each)]))
    if name not in trainer_info(first.trainer).each_batch:
        return PhaseCost(once=_through([(config.estimated_batch, one) for config, one in points]))
    each_of = [(config.estimated_batch, one.times(1 / config.accumulation_steps)) for config, one in points]
    return PhaseCost(each=_through(each_of))


def _peaks(estimates: Sequence[Estimated]) -> dict[str | None, Affine]:
    """Return the bytes of tensors at the peak of each phase; None stands for the time between phases."""
    points: dict[str | None, list[tuple[float, float]]] = {}
    for config, ledger in estimates:
        peaks: dict[str | None, int] = {name: peak.num_bytes for name, peak in ledger.phase_peak.items()}
        if ledger.peak_phase is None:
            peaks[None] = ledger.peak
        for name, num_bytes in peaks.items():
            points.setdefault(name, []).append((config.estimated_batch, num_bytes))
    return {name: Affine.through(some) for name, some in points.items()}

"""Changes with their costs, in the order in which they are worth trying."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from dpprof.config.changes import ALTERS, BATCH, LEARNED, SAME, Change, changed, smaller_batch
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.record.figures.capacity import Bound, doubt_bytes, needed_bytes, predicted_s, step_of
from dpprof.record.figures.results import Result
from dpprof.record.ledger import CollectiveRow, LedgerResult, Moved, PhaseTime, TrafficRow
from dpprof.vocabulary.formats import joined

# Savings below this share of a cost do not count.
_SMALL = 0.001

# Verdicts on a change: where the experiment does not fit, where it fits, and where it is of no use.
SUFFICES, HELPS = "fits", "not alone"
FASTER, SMALLER = "less time", "less memory"
NOTHING, TOO_LARGE = "saves nothing", "would not fit"
# A logical batch of more physical batches than this is extrapolated from estimates of two and of three.
MOST_ESTIMATED = 4
_TWO = (2, 3)


def batches_to_estimate(accumulation_steps: int) -> tuple[int, ...]:
    """Return the numbers of physical batches to estimate for the cost of a logical one."""
    return (accumulation_steps,) if accumulation_steps <= MOST_ESTIMATED else _TWO


@dataclass(frozen=True)
class LogicalCost:
    """Cost of a logical step: bytes needed (with doubts), FLOPs, bytes moved.

    Its predicted time, and what bounds that, are None if not known.
    """

    needed: int
    peak_phase: str | None
    flops: int
    moved: int
    seconds: float | None
    folders: tuple[Path, ...] = ()
    bound: Bound | None = None

    @classmethod
    def of(cls, config: ExperimentConfig, estimates: Sequence[Result]) -> Self | None:
        """Build from the estimates of `batches_to_estimate`, in order; None if a doubt has no bound."""
        records = [result.record for result in estimates if result.record is not None]
        ledgers = [record.ledger for record in records if record.ledger is not None]
        first, last = ledgers[0], ledgers[-1]
        in_doubt = doubt_bytes(last)
        if in_doubt is None:
            return None
        whole = last if len(ledgers) == 1 else extended(first, last, config.accumulation_steps - _TWO[0])
        step = step_of(predicted_s(config, whole))
        return cls(
            needed=needed_bytes(config, last) + in_doubt,
            peak_phase=last.peak_phase,
            flops=whole.moved_in_step.flops,
            moved=whole.moved_in_step.num_bytes,
            seconds=step and step.seconds,
            folders=tuple(result.folder.path for result in estimates),
            bound=Bound.of(whole, step),
        )

    def saves(self, other: Self) -> bool:
        """Return True if it needs clearly less memory than another."""
        return self.needed < other.needed * (1 - _SMALL)

    def fits(self, limit: int | None) -> bool:
        """Return True if it is within the limit, or without a limit."""
        return limit is None or self.needed <= limit

    @property
    def effort(self) -> tuple[float, float]:
        """Sort key for time: the predicted time, or without it FLOPs, then bytes moved."""
        return (self.seconds, 0.0) if self.seconds is not None else (float(self.flops), float(self.moved))


def extended(less: LedgerResult, more: LedgerResult, times: int) -> LedgerResult:
    """Return ledger `more` with the traffic of `less` plus `times` the difference between the two."""
    weights = ((less, 1), (more, times), (less, -times))
    moved: dict[str | None, Moved] = {}
    phase_s: dict[str, PhaseTime] = {}
    for ledger, weight in weights:
        for name, time in ledger.phase_s.items():
            phase_s[name] = phase_s.get(name, PhaseTime()).plus(time, weight)
        for phase, one in ledger.moved(by=lambda row: row.phase).items():
            moved[phase] = moved.get(phase, Moved()).plus(one, weight)
    traffic = [TrafficRow(phase or "", "", phase, 0, **vars(one)) for phase, one in moved.items()]
    collectives = [
        CollectiveRow("", row.phase, n * row.calls, 0, n * row.sent, n * (row.predicted_s or 0.0))
        for ledger, n in weights
        for row in ledger.collectives
    ]
    return dataclasses.replace(more, traffic=traffic, collectives=collectives, phase_s=phase_s)


@dataclass(frozen=True)
class Weighed:
    """Some changes made together, and their cost."""

    changes: tuple[Change, ...]
    cost: LogicalCost

    @property
    def name(self) -> str:
        """Names of the changes."""
        return joined([change.name for change in self.changes])

    @property
    def options(self) -> str:
        """Options that make the changes."""
        return " ".join(change.options for change in self.changes)

    @property
    def alters(self) -> str:
        """The strongest effect that any of the changes has on the training."""
        return max((change.alters for change in self.changes), key=list(ALTERS).index)


@dataclass(frozen=True)
class Weighing:
    """An experiment and single changes to it. `limit` is the most bytes it may need, None without a device.

    `together` are changes that fit only together, or come nearest to it. If a smaller physical batch alone
    fits, they are changes that take less time with a batch less small.
    """

    given: LogicalCost
    limit: int | None
    alone: Sequence[Weighed]
    together: Weighed | None = None

    @property
    def fits(self) -> bool:
        """True if nothing needs to change."""
        return self.given.fits(self.limit)

    def verdict(self, one: Weighed) -> str:
        """Return the verdict on a change."""
        saves = one.cost.saves(self.given)
        if self.fits:
            if not one.cost.fits(self.limit):
                return TOO_LARGE
            return FASTER if self._is_faster(one.cost) else SMALLER if saves else NOTHING
        return SUFFICES if one.cost.fits(self.limit) else HELPS if saves else NOTHING

    def _is_faster(self, cost: LogicalCost) -> bool:
        for now, before in zip(cost.effort, self.given.effort, strict=True):
            if abs(now - before) > _SMALL * before:
                return now < before
        return False

    @cached_property
    def ordered(self) -> list[Weighed]:
        """Changes worth making, those that alter what is learned last.

        First come those that suffice (or, if the experiment fits, save time), the least effort first; then
        those that only save memory, the most bytes first.
        """
        worth = [one for one in self.alone if self.verdict(one) not in (NOTHING, TOO_LARGE)]
        return sorted(worth, key=self._rank)

    def _rank(self, one: Weighed) -> tuple[bool, bool, tuple[float, float]]:
        is_first = self.verdict(one) in (SUFFICES, FASTER)
        by_memory = (float(one.cost.needed), 0.0)
        return (one.alters == LEARNED, not is_first, one.cost.effort if is_first else by_memory)

    @property
    def others(self) -> list[Weighed]:
        """Changes that are not worth making."""
        return [one for one in self.alone if one not in self.ordered]

    @property
    def best(self) -> Weighed | None:
        """First change to make that leaves what is learned as it is, if one helps."""
        wanted = FASTER if self.fits else SUFFICES
        found = (one for one in self.ordered if self.verdict(one) == wanted and one.alters != LEARNED)
        return next(found, None)

    @property
    def worth_a_smaller_batch(self) -> Weighed | None:
        """A faster change that keeps the gradient and would fit with a smaller physical batch."""
        best = self.best
        if self.fits or best is None or best.changes[0].kind != BATCH:
            return None
        helping = [one for one in self.ordered if self.verdict(one) == HELPS and one.alters == SAME]
        faster = [one for one in helping if one.cost.effort < best.cost.effort]
        return min(faster, key=lambda one: one.cost.effort, default=None)


@dataclass(frozen=True)
class Combining:
    """Changes to an experiment put together until it needs no more than `limit`.

    `estimate` gives the cost of a changed experiment; None if it cannot be estimated.
    """

    config: ExperimentConfig
    estimate: Callable[[ExperimentConfig], LogicalCost | None]
    limit: int | None

    def together(self, given: LogicalCost, changes: Iterable[Change]) -> Weighed | None:
        """Add changes one by one until they fit, a smaller physical batch last.

        Changes that save nothing beside the earlier ones are left out; those that alter what is learned are
        tried only if the others do not suffice. If nothing fits, returns the least need; None if nothing
        saves anything.
        """
        made, altering = Weighed((), given), []
        for change in changes:
            if change.alters == LEARNED:
                altering.append(change)
            elif not made.cost.fits(self.limit) and (tried := self._with(made, change)) is not None:
                made = tried if tried.cost.saves(made.cost) else made
        found = self.with_smaller_batch(made)
        for change in altering:
            if not found.cost.fits(self.limit) and (tried := self._with(made, change)) is not None:
                found = min(found, self.with_smaller_batch(tried), key=lambda one: one.cost.needed)
        return found if found.changes else None

    def with_smaller_batch(self, made: Weighed) -> Weighed:
        """Add a smaller physical batch if the changes do not fit yet."""
        if made.cost.fits(self.limit):
            return made
        try:
            found = self.smaller_batch(made.changes)
        except ConfigError:
            return made
        return found if found is not None and found.cost.saves(made.cost) else made

    def smaller_batch(self, made: tuple[Change, ...] = ()) -> Weighed | None:
        """Reduce the physical batch until it fits, or as far as estimates go; None if none can be estimated.

        Raises ConfigError if the batch cannot be split.
        """
        config = _applied(self.config, made)
        logical = config.batch_size * config.accumulation_steps
        change = smaller_batch(config)
        found: Weighed | None = None
        while (cost := self.estimate(changed(config, change.settings))) is not None:
            found = Weighed((*made, change), cost)
            if cost.fits(self.limit):
                break
            try:
                change = smaller_batch(changed(config, change.settings), logical)
            except ConfigError:
                break
        return found

    def _with(self, made: Weighed, change: Change) -> Weighed | None:
        """Add a change, dropping one that excludes it; None if none fits or its kind is made already."""
        if change.kind in {BATCH, *(other.kind for other in made.changes)}:
            return None
        for i in range(-1, len(made.changes)):
            changes = (*(other for j, other in enumerate(made.changes) if j != i), change)
            try:
                config = _applied(self.config, changes)
            except ConfigError:
                continue
            cost = self.estimate(config)
            return None if cost is None else Weighed(changes, cost)
        return None


def _applied(config: ExperimentConfig, made: tuple[Change, ...]) -> ExperimentConfig:
    for change in made:
        config = changed(config, change.settings)
    return config

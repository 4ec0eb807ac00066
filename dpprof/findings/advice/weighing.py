"""Changes with their costs, in the order in which they are worth trying."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from dpprof.config.changes import ALTERS, BATCH, LEARNED, SAME, Change, changed, smaller_batch
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.record.figures.capacity import communication_s, doubt_bytes, floor_s, needed_bytes
from dpprof.record.figures.results import Result
from dpprof.record.ledger import CollectiveRow, LedgerResult, Moved, TrafficRow
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
    """Cost of a logical step: bytes needed (with doubts), FLOPs, bytes moved, and the least time if known."""

    needed: int
    peak_phase: str | None
    flops: int
    moved: int
    least_s: float | None
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, config: ExperimentConfig, estimates: Sequence[Result]) -> Self | None:
        """Build from the estimates of `batches_to_estimate`, in order; None if a doubt has no bound."""
        ledgers = [result.record.ledger for result in estimates if result.record is not None]
        last = ledgers[-1]
        assert last is not None, "it finished"
        in_doubt = doubt_bytes(last)
        if in_doubt is None:
            return None
        first = ledgers[0]
        assert first is not None, "it finished"
        whole = last if len(ledgers) == 1 else extended(first, last, config.accumulation_steps - _TWO[0])
        floors = floor_s(config, whole)
        return cls(
            needed=needed_bytes(config, last) + in_doubt,
            peak_phase=last.peak_phase,
            flops=whole.moved_in_step.flops,
            moved=whole.moved_in_step.num_bytes,
            least_s=max(sum(floors.values()), communication_s(config, whole) or 0.0) if floors else None,
            folders=tuple(result.folder.path for result in estimates),
        )

    @property
    def effort(self) -> tuple[float, float]:
        """Sort key for time: the least time, or without it FLOPs, then bytes moved."""
        return (self.least_s, 0.0) if self.least_s is not None else (float(self.flops), float(self.moved))


def extended(less: LedgerResult, more: LedgerResult, times: int) -> LedgerResult:
    """Return ledger `more` with the traffic of `less` plus `times` the difference between the two."""
    before, after = (ledger.moved(by=lambda row: row.phase) for ledger in (less, more))
    grown = {phase: before.get(phase, Moved()) for phase in after}
    grown = {phase: one.plus(after[phase], times).plus(one, -times) for phase, one in grown.items()}
    traffic = [TrafficRow(phase or "", "", phase, 0, **vars(one)) for phase, one in grown.items()]
    sent, more_sent = _sent(less), _sent(more)
    collectives = [
        CollectiveRow("", phase, sent=_grown(sent.get(phase, 0), num_bytes, times))
        for phase, num_bytes in more_sent.items()
    ]
    return dataclasses.replace(more, traffic=traffic, collectives=collectives)


def _grown(before: int, after: int, times: int) -> int:
    return before + times * (after - before)


def _sent(ledger: LedgerResult) -> Mapping[str | None, int]:
    found: dict[str | None, int] = {}
    for row in ledger.collectives:
        found[row.phase] = found.get(row.phase, 0) + row.sent
    return found


# Cost of a changed experiment; None if it cannot be estimated.
Estimate = Callable[[ExperimentConfig], LogicalCost | None]


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
        return self.holds(self.given)

    def holds(self, cost: LogicalCost) -> bool:
        """Return True if the device holds it."""
        return fits(cost, self.limit)

    def verdict(self, one: Weighed) -> str:
        """Return the verdict on a change."""
        saves = one.cost.needed < self.given.needed * (1 - _SMALL)
        if self.fits:
            if not self.holds(one.cost):
                return TOO_LARGE
            return FASTER if self._is_faster(one.cost) else SMALLER if saves else NOTHING
        return SUFFICES if self.holds(one.cost) else HELPS if saves else NOTHING

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
    def to_combine(self) -> list[Change]:
        """Single changes in the order in which to combine them.

        Those that save nothing alone come last, but may help once the peak has moved.
        """
        return [change for one in (*self.ordered, *self.others) for change in one.changes]

    @property
    def best(self) -> Weighed | None:
        """First change to make that leaves what is learned as it is, if one helps."""
        if self.fits:
            found = [one for one in self.ordered if self.verdict(one) == FASTER]
        else:
            found = [one for one in self.ordered if self.verdict(one) == SUFFICES]
        return next((one for one in found if one.alters != LEARNED), None)

    @property
    def worth_a_smaller_batch(self) -> Weighed | None:
        """Faster change with the same gradient that may fit too, if the best is a smaller physical batch."""
        best = self.best
        if self.fits or best is None or best.changes[0].kind != BATCH:
            return None
        helping = [one for one in self.ordered if self.verdict(one) == HELPS and one.alters == SAME]
        faster = [one for one in helping if one.cost.effort < best.cost.effort]
        return min(faster, key=lambda one: one.cost.effort, default=None)


def fits(cost: LogicalCost, limit: int | None) -> bool:
    """Return True if the cost is within the limit, or without a limit."""
    return limit is None or cost.needed <= limit


def smaller_batches(config: ExperimentConfig, estimate: Estimate, limit: int | None) -> Weighed | None:
    """Reduce the physical batch until it fits, or as far as estimates go; None if none can be estimated.

    Raises ConfigError if the batch cannot be split.
    """
    logical = config.batch_size * config.accumulation_steps
    change = smaller_batch(config)
    found: Weighed | None = None
    while (cost := estimate(changed(config, change.settings))) is not None:
        found = Weighed((change,), cost)
        if fits(cost, limit):
            break
        try:
            change = smaller_batch(changed(config, change.settings), logical)
        except ConfigError:
            break
    return found


def together(
    config: ExperimentConfig,
    given: LogicalCost,
    changes: Iterable[Change],
    estimate: Estimate,
    limit: int | None,
) -> Weighed | None:
    """Add changes one by one until they fit, a smaller physical batch last.

    Changes that save nothing beside the earlier ones are left out; those that alter what is learned are tried
    only if the others do not suffice. If nothing fits, returns the least need; None if nothing saves
    anything.
    """
    by_end: dict[bool, list[Change]] = {False: [], True: []}
    for change in changes:
        if change.kind != BATCH:
            by_end[change.alters == LEARNED].append(change)
    made, cost = _added(config, given, by_end[False], estimate, limit)
    found = with_smaller_batch(made, config, cost, estimate, limit)
    for change in by_end[True]:
        more = _with(config, made, change)
        if fits(found[1], limit) or not more or (tried := estimate(_applied(config, more))) is None:
            continue
        other = with_smaller_batch(more, config, tried, estimate, limit)
        found = min(found, other, key=lambda one: one[1].needed)
    return Weighed(*found) if found[0] else None


def _applied(config: ExperimentConfig, made: tuple[Change, ...]) -> ExperimentConfig:
    for change in made:
        config = changed(config, change.settings)
    return config


def _added(
    config: ExperimentConfig,
    cost: LogicalCost,
    changes: list[Change],
    estimate: Estimate,
    limit: int | None,
) -> tuple[tuple[Change, ...], LogicalCost]:
    """Make changes that lower the memory, until it fits."""
    made: tuple[Change, ...] = ()
    for change in changes:
        if fits(cost, limit):
            break
        more = _with(config, made, change)
        tried = estimate(_applied(config, more)) if more else None
        if tried is not None and tried.needed < cost.needed * (1 - _SMALL):
            made, cost = more, tried
    return made, cost


def _with(config: ExperimentConfig, made: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """Add a change, dropping one that excludes it; empty if that fails or one of its kind is made already."""
    if change.kind in {other.kind for other in made}:
        return ()
    for less in (made, *(made[:i] + made[i + 1 :] for i in range(len(made)))):
        try:
            _applied(config, (*less, change))
        except ConfigError:
            continue
        return (*less, change)
    return ()


def with_smaller_batch(
    made: tuple[Change, ...],
    config: ExperimentConfig,
    cost: LogicalCost,
    estimate: Estimate,
    limit: int | None,
) -> tuple[tuple[Change, ...], LogicalCost]:
    """Add a smaller physical batch if the changes do not fit yet."""
    if fits(cost, limit):
        return made, cost
    try:
        found = smaller_batches(_applied(config, made), estimate, limit)
    except ConfigError:
        return made, cost
    if found is None or found.cost.needed >= cost.needed * (1 - _SMALL):
        return made, cost
    return (*made, *found.changes), found.cost

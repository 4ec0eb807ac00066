"""Changes with their costs, in the order in which they are worth trying."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpprof.config.changes import ALTERS, BATCH, LEARNED, SAME, Change, changed, smaller_batch
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.record.figures.cost import StepCost
from dpprof.record.figures.results import Result
from dpprof.record.figures.step import SMALL, LogicalStep
from dpprof.vocabulary.formats import joined

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


def cost_of(config: ExperimentConfig, estimates: Sequence[Result]) -> LogicalStep | None:
    """Return what a logical step takes, from the estimates of `batches_to_estimate`.

    None if nothing bounds what one of them leaves in doubt.
    """
    known = [result.estimated for result in estimates]
    cost = StepCost.of([one for one in known if one is not None])
    if cost.doubt is None:
        return None
    found = cost.logical(config.estimated_batch, config.accumulation_steps)
    return dataclasses.replace(found, folders=tuple(result.folder.path for result in estimates))


@dataclass(frozen=True)
class Weighed:
    """Some changes made together, and their cost."""

    changes: tuple[Change, ...]
    cost: LogicalStep

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

    given: LogicalStep
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

    def _is_faster(self, cost: LogicalStep) -> bool:
        for now, before in zip(cost.effort, self.given.effort, strict=True):
            if abs(now - before) > SMALL * before:
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
    estimate: Callable[[ExperimentConfig], LogicalStep | None]
    limit: int | None

    def together(self, given: LogicalStep, changes: Iterable[Change]) -> Weighed | None:
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

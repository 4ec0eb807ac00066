"""Changes with what they cost, in the order in which they are worth trying."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpprof.config.changes import ALTERS, BATCH, LEARNED, SAME, Change, changed, smaller_batch
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.figures.advice.cost import Cost
from dpprof.vocabulary.formats import joined

# Less than this share of a cost is no saving.
_SMALL = 0.001

# What a change does, by what the experiment lacks: memory, or nothing.
SUFFICES, HELPS = "fits", "not alone"
FASTER, SMALLER = "less time", "less memory"
NOTHING, TOO_LARGE = "saves nothing", "would not fit"

# What a changed experiment costs; None if it cannot be estimated.
Estimate = Callable[[ExperimentConfig], Cost | None]


@dataclass(frozen=True)
class Weighed:
    """Some changes made together, and the cost of what they make."""

    changes: tuple[Change, ...]
    cost: Cost

    @property
    def name(self) -> str:
        """What is changed."""
        return joined([change.name for change in self.changes])

    @property
    def options(self) -> str:
        """The options that make the changes."""
        return " ".join(change.options for change in self.changes)

    @property
    def alters(self) -> str:
        """What they alter for the training, all together."""
        return max((change.alters for change in self.changes), key=list(ALTERS).index)


@dataclass(frozen=True)
class Advice:
    """An experiment and single changes of it. `limit` are the bytes that it may need, None without a device.
    `together` are changes that fit only together, or what comes nearest to it; or if a smaller physical batch
    alone fits, those that fit with a batch that need not be as small, and take less time.
    """

    given: Cost
    limit: int | None
    alone: Sequence[Weighed]
    together: Weighed | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing needs to change."""
        return self.holds(self.given)

    def holds(self, cost: Cost) -> bool:
        """Whether the device holds it."""
        return fits(cost, self.limit)

    def verdict(self, one: Weighed) -> str:
        """What a change does."""
        saves = one.cost.needed < self.given.needed * (1 - _SMALL)
        if self.fits:
            if not self.holds(one.cost):
                return TOO_LARGE
            return FASTER if self._is_faster(one.cost) else SMALLER if saves else NOTHING
        return SUFFICES if self.holds(one.cost) else HELPS if saves else NOTHING

    def _is_faster(self, cost: Cost) -> bool:
        for now, before in zip(cost.effort, self.given.effort, strict=True):
            if abs(now - before) > _SMALL * before:
                return now < before
        return False

    @cached_property
    def ordered(self) -> list[Weighed]:
        """The changes worth making, those that alter what is learned last.

        Where the experiment does not fit: those that suffice, the least effort first, then the others, the
        most bytes saved first. Where it fits: those that lower the effort, the least first, then those that
        lower the memory, the most first.
        """
        worth = [one for one in self.alone if self.verdict(one) not in (NOTHING, TOO_LARGE)]
        return sorted(worth, key=self._rank)

    def _rank(self, one: Weighed) -> tuple[bool, bool, tuple[float, float]]:
        is_first = self.verdict(one) in (SUFFICES, FASTER)
        by_memory = (float(one.cost.needed), 0.0)
        return (one.alters == LEARNED, not is_first, one.cost.effort if is_first else by_memory)

    @property
    def others(self) -> list[Weighed]:
        """The changes that are not worth making."""
        return [one for one in self.alone if one not in self.ordered]

    @property
    def to_combine(self) -> list[Change]:
        """Single changes in the order in which they are put together: those that help first, then those that
        save nothing alone, as the peak may lie elsewhere once others are made.
        """
        return [change for one in (*self.ordered, *self.others) for change in one.changes]

    @property
    def best(self) -> Weighed | None:
        """What to do first, if anything that does not alter what is learned helps."""
        if self.fits:
            found = [one for one in self.ordered if self.verdict(one) == FASTER]
        else:
            found = [one for one in self.ordered if self.verdict(one) == SUFFICES]
        return next((one for one in found if one.alters != LEARNED), None)

    @property
    def worth_a_smaller_batch(self) -> Weighed | None:
        """What takes less time and gives the same gradient, where the best change is a smaller physical
        batch: with that it may fit too.
        """
        best = self.best
        if self.fits or best is None or best.changes[0].kind != BATCH:
            return None
        helping = [one for one in self.ordered if self.verdict(one) == HELPS and one.alters == SAME]
        faster = [one for one in helping if one.cost.effort < best.cost.effort]
        return min(faster, key=lambda one: one.cost.effort, default=None)


def fits(cost: Cost, limit: int | None) -> bool:
    """Whether so many bytes hold it; without a limit they do."""
    return limit is None or cost.needed <= limit


def smaller_batches(config: ExperimentConfig, estimate: Estimate, limit: int | None) -> Weighed | None:
    """The largest of smaller physical batches that fits, else the smallest; None if none can be estimated.

    Raises ConfigError if the batch cannot be split.
    """
    change = smaller_batch(config)
    found: Weighed | None = None
    while (cost := estimate(changed(config, change.settings))) is not None:
        found = Weighed((change,), cost)
        if fits(cost, limit):
            break
        try:
            change = smaller_batch(changed(config, change.settings))
        except ConfigError:
            break
    return found


def together(
    config: ExperimentConfig, given: Cost, changes: Iterable[Change], estimate: Estimate, limit: int | None
) -> Weighed | None:
    """Changes put together one after the other until they fit, the physical batch made smaller last. One
    that saves nothing beside those before it is left out; what alters what is learned is only tried if
    nothing else does.

    Gives what needs the least if nothing fits; None if nothing saves anything.
    """
    by_end: dict[bool, list[Change]] = {False: [], True: []}
    for change in changes:
        if change.kind != BATCH:
            by_end[change.alters == LEARNED].append(change)
    made, cost = _added((), config, given, by_end[False], estimate, limit)
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
    made: tuple[Change, ...],
    config: ExperimentConfig,
    cost: Cost,
    changes: list[Change],
    estimate: Estimate,
    limit: int | None,
) -> tuple[tuple[Change, ...], Cost]:
    """The changes that lower the memory further, until it fits."""
    for change in changes:
        if fits(cost, limit):
            break
        more = _with(config, made, change)
        tried = estimate(_applied(config, more)) if more else None
        if tried is not None and tried.needed < cost.needed * (1 - _SMALL):
            made, cost = more, tried
    return made, cost


def _with(config: ExperimentConfig, made: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """The changes with one more, without one of them that excludes it; empty if that does not do, or if one
    of its kind is made.
    """
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
    made: tuple[Change, ...], config: ExperimentConfig, cost: Cost, estimate: Estimate, limit: int | None
) -> tuple[tuple[Change, ...], Cost]:
    """The changes with the largest of smaller physical batches that fits, if they do not fit yet."""
    if fits(cost, limit):
        return made, cost
    try:
        found = smaller_batches(_applied(config, made), estimate, limit)
    except ConfigError:
        return made, cost
    if found is None or found.cost.needed >= cost.needed * (1 - _SMALL):
        return made, cost
    return (*made, *found.changes), found.cost

"""The verdict: every finding that the figures carry, and if they carry none, why."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.estimates import without_paired
from dpprof.reports.comparison.findings import (
    advice,
    best,
    choice,
    communication,
    estimated,
    extra,
    largest_batch,
    saving,
)
from dpprof.reports.comparison.findings.best import best_at_each, fastest_at, rank, smallest_at
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.intervals import FEWEST_STEPS


class Why(Enum):
    """Why there is no verdict, in a sentence."""

    NOTHING_FINISHED = "No experiment finished."
    DISTURBED = "Only step times were measured, and they were disturbed."
    TOO_LITTLE = (
        "Too little was measured to set trainers against each other: it takes peaks "
        f"(passes=clean,memory) or {FEWEST_STEPS} timed steps."
    )
    NO_TWO_TRAINERS = "Nothing here was measured with two trainers under the same settings."


@dataclass(frozen=True)
class NoVerdict:
    """That the figures carry no finding."""

    why: Why


def verdict(comparison: Comparison, foreseen: Comparison | None = None) -> list[Finding[object]]:
    """Every finding, the most useful first. Of an experiment both estimated and measured the measurement
    counts; trainers are set against each other where they were measured, if any were.

    `foreseen` are estimates of a larger model than the one compared.
    """
    unpaired = without_paired(comparison)
    estimates = [cell for cell in unpaired.cells if cell.is_estimate]
    measured = [cell for cell in unpaired.cells if not cell.is_estimate]
    compared = Comparison(comparison.name, measured or estimates)
    found = list(_about_trainers(compared))
    about_estimates = list(_about_estimates(comparison))
    if not found and not about_estimates:
        none = NoVerdict(_why_none(unpaired))
        found = [Finding("No verdict", none.why.value, none)]
    advised = advice.advise(Comparison(comparison.name, estimates))
    advised += advice.advise(foreseen, is_of_larger=True) if foreseen is not None else []
    sent = communication.communications(comparison)
    found += [communication.say(sent)] if sent else []
    at = int(bool(found) and isinstance(found[0].data, choice.Choice | NoVerdict))
    found[at:at] = [*map(advice.say, advised), *about_estimates]
    return found


def _about_estimates(comparison: Comparison) -> Iterator[Finding[object]]:
    for fit in estimated.fits(comparison):
        yield estimated.say_fit(fit)
    what = estimated.estimated(comparison)
    if what is not None:
        yield estimated.say(what)


def _about_trainers(comparison: Comparison) -> Iterator[Finding[object]]:
    calm = [place for place in comparison.places if not comparison.is_disturbed_at(place[0])]
    fastest = best_at_each(comparison.places, fastest_at)
    smallest = best_at_each(comparison.places, smallest_at)
    use = choice.choose(comparison, fastest, best_at_each(calm, smallest_at))
    if use is not None:
        yield choice.say(use)
    for bests, metric in ((fastest, STEP), (smallest, PEAK)):
        ranking = rank(comparison, bests, metric)
        if ranking is not None:
            yield best.say(ranking)
    saved = saving.savings(comparison)
    if saved is not None:
        yield saving.say(saved)
    limit = largest_batch.shortages(comparison) or largest_batch.extrapolate(comparison)
    if limit is not None:
        yield largest_batch.say(limit)
    for one in extra.extras(comparison):
        yield extra.say(one)


def _why_none(comparison: Comparison) -> Why:
    if not any(cell.finished for cell in comparison.cells):
        return Why.NOTHING_FINISHED
    several = [place for place in comparison.places if sum(bool(cell.finished) for cell in place) > 1]
    if any(cell.is_disturbed for place in several for cell in place):
        return Why.DISTURBED
    return Why.TOO_LITTLE if several else Why.NO_TWO_TRAINERS

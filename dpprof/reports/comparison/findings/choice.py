"""Which trainer to use: where one is the fastest everywhere and one the smallest, be they the same or not."""

from dataclasses import dataclass

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.best import Best, winner_of
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import Places, full_name, places_of, size_of, subject
from dpprof.vocabulary.formats import milliseconds, size
from dpprof.vocabulary.trainers import short_name


@dataclass(frozen=True)
class Cost:
    """What one trainer's step takes."""

    step_ms: float
    peak_mib: float


@dataclass(frozen=True)
class Trade:
    """Time against memory at one place: what the fastest trainer's step takes, and the smallest one's."""

    place: str
    fastest: Cost
    smallest: Cost


@dataclass(frozen=True)
class Choice:
    """The trainer to use for its speed and the one for its memory; `trade` sets two that differ side by side.
    `subject` says for which model on which device.

    `fastest` is None where `smallest` shares the first place in time everywhere, with whichever others.
    """

    fastest: str | None
    smallest: str
    places: Places
    trade: Trade | None = None
    subject: str = ""


def choose(comparison: Comparison, fastest: list[Best], smallest: list[Best]) -> Choice | None:
    """The choice, if who is best at each place carries one. Both lists are of undisturbed places."""
    fast, small = winner_of(fastest), winner_of(smallest)
    if small is None or not fastest or len(fastest) != len(smallest):  # a peak is missing somewhere
        return None
    cells = [best.cells[0] for best in fastest]
    places, subject_ = places_of(comparison, cells), subject(comparison, cells)
    if fast is None:
        shares = all(small in {cell.trainer for cell in best.winners} for best in fastest)
        return Choice(None, small, places, subject=subject_) if shares else None
    if fast == small:
        return Choice(fast, small, places, subject=subject_)
    trade = _trade(comparison, fastest, small)
    return Choice(fast, small, places, trade, subject_) if trade else None


def _trade(comparison: Comparison, fastest: list[Best], small: str) -> Trade | None:
    """At the largest place where both have a peak."""
    pairs = [(best.winners[0], cell) for best in fastest for cell in best.cells if cell.trainer == small]
    known = [pair for pair in pairs if all(PEAK in cell.figures for cell in pair)]
    if not known:
        return None
    one, other = max(known, key=lambda pair: size_of(pair[0]))
    return Trade(full_name(comparison, one), _cost(one), _cost(other))


def _cost(cell: Cell) -> Cost:
    return Cost(cell.figures[STEP], cell.figures[PEAK])


def say(choice: Choice) -> Finding[Choice]:
    """The choice in a sentence."""
    fast = None if choice.fastest is None else short_name(choice.fastest)
    small, trade = short_name(choice.smallest), choice.trade
    if trade is not None:
        text = (
            f"train with {fast} if its memory fits, else with {small}. At {trade.place}, "
            f"{fast} takes {_shown(trade.fastest)}, and {small} {_shown(trade.smallest)}."
        )
    elif fast is None:
        text = (
            f"train with {small}. Of the DP trainers it needs the least memory {choice.places}, and no other "
            "is clearly faster."
        )
    else:
        text = (
            f"train with {fast}. Of the DP trainers it takes the least time and needs the least memory "
            f"{choice.places}."
        )
    return Finding("Use", f"For {choice.subject}: {text}", choice)


def _shown(cost: Cost) -> str:
    return f"{milliseconds(cost.step_ms)} and {size(cost.peak_mib)}"

"""Which DP trainer is best: at one place, and at all of them together.

A step time counts as shorter if the difference is larger than the spread (`intervals.py`), a trainer as the
best only among those that finished at a place. Where a cell was disturbed (`calm.py`) none is called fastest.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.cell import Cell, competing
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.intervals import step_ratio
from dpprof.reports.comparison.places import Places, full_name, places_of, some_places
from dpprof.vocabulary.formats import fixed, joined
from dpprof.vocabulary.trainers import STANDARD, short_name

# Peaks closer than this are the same: a few small tensors apart.
SAME_PEAK = 0.001
_TOPICS = {
    STEP: ("Time", "takes the least time", "as long"),
    PEAK: ("Memory", "needs the least memory", "as much"),
}


@dataclass(frozen=True)
class Best:
    """Who is best at one place: one trainer, several that cannot be told apart, or none.

    `cells` are those of the DP trainers that compete, the best first.
    """

    cells: list[Cell]
    winners: list[Cell]


@dataclass(frozen=True)
class Won:
    """The trainers that are best at some places: one, several that cannot be told apart, or none where too
    few steps were timed.
    """

    trainers: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True)
class Ranking:
    """Which DP trainers have the lowest figure, and where; who wins most places comes first.

    Where one trainer wins everywhere `to_standard` are its ratios to StandardTrainer's figure, where that is
    known, and `lead` is how many times as much the next trainer needs, place by place.
    `is_of_single_runs` says that some cell counts a single run, which cannot show how much runs differ.
    """

    metric: str
    places: Places
    won: tuple[Won, ...]
    to_standard: tuple[float, ...] = ()
    lead: tuple[float, ...] = ()
    is_of_single_runs: bool = False

    @property
    def winner(self) -> str | None:
        """The trainer that is best at every place, if there is one."""
        only = self.won[0].trainers if len(self.won) == 1 else ()
        return only[0] if len(only) == 1 else None


def fastest_at(place: list[Cell]) -> Best | None:
    """The DP trainer with the shortest step at a place; None if fewer than two of them finished, or if a
    cell there was disturbed.
    """
    cells = competing(place, STEP)
    if len(cells) < 2 or any(cell.is_disturbed for cell in place):
        return None
    winners = [cells[0]]
    for cell in cells[1:]:
        ratio = step_ratio(cell, cells[0])
        if ratio is None:
            return Best(cells, [])
        if not ratio.is_clear:
            winners.append(cell)
    return Best(cells, winners)


def smallest_at(place: list[Cell]) -> Best | None:
    """The DP trainer with the lowest peak at a place; None if fewer than two of them finished."""
    cells = competing(place, PEAK)
    if len(cells) < 2:
        return None
    lowest = cells[0].figures[PEAK]
    return Best(cells, [cell for cell in cells if cell.figures[PEAK] <= lowest * (1 + SAME_PEAK)])


def best_at_each(places: list[list[Cell]], best_at: Callable[[list[Cell]], Best | None]) -> list[Best]:
    """Who is best at each place, where that can be asked."""
    return [best for place in places if (best := best_at(place)) is not None]


def winner_of(bests: list[Best]) -> str | None:
    """The trainer that is best at every place, if there is one."""
    trainers = {tuple(cell.trainer for cell in best.winners) for best in bests}
    only = next(iter(trainers)) if len(trainers) == 1 else ()
    return only[0] if len(only) == 1 else None


def rank(comparison: Comparison, bests: list[Best], metric: str) -> Ranking | None:
    """What those that are best at single places come to; None without any."""
    if not bests:
        return None
    by_winners: dict[tuple[str, ...], list[str]] = {}
    for best in bests:
        names = by_winners.setdefault(tuple(cell.trainer for cell in best.winners), [])
        names.append(full_name(comparison, best.cells[0]))
    to_standard, lead = [], []
    if winner_of(bests) is not None:
        to_standard = [comparison.ratio(best.winners[0], metric) for best in bests]
        lead = [best.cells[1].figures[metric] / best.cells[0].figures[metric] for best in bests]
    ordered = sorted(by_winners.items(), key=lambda item: -len(item[1]))
    return Ranking(
        metric=metric,
        places=places_of(comparison, [best.cells[0] for best in bests]),
        won=tuple(Won(trainers, tuple(names)) for trainers, names in ordered),
        to_standard=tuple(ratio for ratio in to_standard if ratio is not None),
        lead=tuple(lead),
        is_of_single_runs=any(len(cell.calm) == 1 for best in bests for cell in best.cells),
    )


def say(ranking: Ranking) -> Finding[Ranking]:
    """The ranking in a sentence."""
    topic, does, as_much = _TOPICS[ranking.metric]
    verb = does.split()[0]
    if ranking.winner is not None:
        text = f"{short_name(ranking.winner)} {does} {ranking.places}"
        if ranking.to_standard:
            text += f", {_range(ranking.to_standard)} x {as_much} as {short_name(STANDARD)}"
        text += f". The next one {verb} {_range(ranking.lead)} x {as_much}"
    else:
        text = "; ".join(_won(ranking, won, does) for won in ranking.won)
    return Finding(topic, f"Of the DP trainers {text}.{_caution(ranking)}", ranking)


def _won(ranking: Ranking, won: Won, does: str) -> str:
    where = some_places(won.places, len(ranking.places.names))
    if len(ranking.won) == 1:
        where = str(ranking.places)
    names = [short_name(trainer) for trainer in won.trainers]
    if not names:
        return f"too few steps were timed to call one the best {where}"
    if len(names) == 1:
        return f"{names[0]} {does} {where}"
    return f"{joined(names)} cannot be told apart {where}"


def _caution(ranking: Ranking) -> str:
    """What a single run of each cell cannot show about times."""
    told = any(won.trainers for won in ranking.won)
    if ranking.metric != STEP or not told or not ranking.is_of_single_runs:
        return ""
    return " Each trainer was measured once; --repeats 3 shows how much runs differ."


def _range(values: tuple[float, ...]) -> str:
    low, high = _times(min(values)), _times(max(values))
    return low if low == high else f"{low} to {high}"


def _times(ratio: float) -> str:
    """A ratio; one close to 1 with as many decimals as tell it from 1."""
    return fixed(ratio, 2 if abs(ratio - 1) >= 0.005 or ratio == 1 else 4)

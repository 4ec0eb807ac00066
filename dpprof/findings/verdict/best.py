"""The best DP trainer: at one place, and at all of them together.

Step times count as different beyond their spread (`intervals.py`); disturbed ones (`run.py`) do not rank.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell, competing
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import step_ratio
from dpprof.findings.comparison.places import at_places, first_names, full_name, size_of, subject
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.names import MOVED, PEAK, RATIOS_OF_TIMES, SAMPLES, STEP, ratio_name
from dpprof.vocabulary.formats import fixed, joined, milliseconds, size
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.trainers import STANDARD, short_name

# Peaks closer than this share count as the same: they are a few small tensors apart.
SAME_PEAK = 0.001
_LISTED = 3
USE = "Use"
# Words for the best and for the worst of several trainers, by metric.
WORDS = {STEP: ("fastest", "slowest"), PEAK: ("least", "most")}
_TOPICS = {
    STEP: ("Time", "takes the least time", "as long"),
    PEAK: ("Memory", "needs the least memory", "as much"),
}


@dataclass(frozen=True)
class Best:
    """Competing DP `cells` at one place, best first, and the `winners`: one, several that tie, or none."""

    cells: list[Cell]
    winners: list[Cell]

    @property
    def trainers(self) -> tuple[str, ...]:
        """Trainers of the winners."""
        return tuple(cell.trainer for cell in self.winners)


def fastest_at(place: list[Cell]) -> Best | None:
    """Return the DP trainers with the shortest step; None for fewer than two, or if a cell was disturbed."""
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
    """Return the DP trainers with the lowest peak; None for fewer than two."""
    cells = competing(place, PEAK)
    if len(cells) < 2:
        return None
    lowest = cells[0].figures[PEAK]
    return Best(cells, [cell for cell in cells if cell.figures[PEAK] <= lowest * (1 + SAME_PEAK)])


def mark(place: list[Cell], cell: Cell, metric: str) -> str:
    """Return the word for a cell's step time or peak; empty if it is neither best nor worst.

    A cell gets a word only if no other comes close: step times must differ by more than their spread.
    """
    best = fastest_at(place) if metric == STEP else smallest_at(place)
    if best is None:
        return ""
    lowest, highest = WORDS[metric]
    *others, last = best.cells
    if len(best.winners) == 1 and best.winners[0] is cell:
        return lowest
    return highest if cell is last and all(_is_clearly_worse(last, one, metric) for one in others) else ""


def _is_clearly_worse(cell: Cell, other: Cell, metric: str) -> bool:
    if metric == PEAK:
        return cell.figures[PEAK] > other.figures[PEAK] * (1 + SAME_PEAK)
    ratio = step_ratio(cell, other)
    return ratio is not None and ratio.is_clear


def best_at_each(places: list[list[Cell]], best_at: Callable[[list[Cell]], Best | None]) -> list[Best]:
    """Return the best at each place where that can be told."""
    return [best for place in places if (best := best_at(place)) is not None]


def _winner_of(bests: list[Best]) -> str | None:
    """Return the trainer that is best at every place, if there is one."""
    trainers = {best.trainers for best in bests}
    only = next(iter(trainers)) if len(trainers) == 1 else ()
    return only[0] if len(only) == 1 else None


def rank(comparison: Comparison, bests: list[Best], metric: str) -> Finding | None:
    """Say which DP trainer has the lowest figure, and where; None if that cannot be told at any place."""
    if not bests:
        return None
    topic, does, as_much = _TOPICS[metric]
    where = at_places(comparison, [best.cells[0] for best in bests])
    winner = _winner_of(bests)
    if winner is None:
        told = "; ".join(_won(comparison, bests, does, where))
    else:
        told = f"{short_name(winner)} {does} {where}"
        ratios = [comparison.ratio(best.winners[0], metric) for best in bests]
        known = [ratio for ratio in ratios if ratio is not None]
        told += f", {_range(known)} x {as_much} as {short_name(STANDARD)}" if known else ""
        lead = [best.cells[1].figures[metric] / best.cells[0].figures[metric] for best in bests]
        told += f". The next one {does.split()[0]} {_range(lead)} x {as_much}"
    text = f"Of the DP trainers {told}."
    are_single = any(len(cell.calm) == 1 for best in bests for cell in best.cells)
    if metric == STEP and are_single and any(best.winners for best in bests):
        text += " Each trainer was measured once; --repeats 3 shows how much runs differ."
    return Finding(topic, text)


def _won(comparison: Comparison, bests: list[Best], does: str, everywhere: str) -> list[str]:
    """Say who is best at which places, the winners of most places first."""
    groups, told = grouped(bests, lambda best: best.trainers), []
    for trainers, won in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = first_names([full_name(comparison, best.cells[0]) for best in won], _LISTED)
        where = everywhere if len(groups) == 1 else f"at {len(won)} of {len(bests)} places ({names})"
        if not trainers:
            told.append(f"too few steps were timed to call one the best {where}")
        elif len(trainers) == 1:
            told.append(f"{short_name(trainers[0])} {does} {where}")
        else:
            told.append(f"{joined(list(map(short_name, trainers)))} cannot be told apart {where}")
    return told


def _range(values: Sequence[float]) -> str:
    low, high = _times(min(values)), _times(max(values))
    return low if low == high else f"{low} to {high}"


def _times(ratio: float) -> str:
    """Format a ratio; one close to 1 gets more decimals."""
    return fixed(ratio, 2 if abs(ratio - 1) >= 0.005 or ratio == 1 else 4)


def choose(comparison: Comparison, fastest: list[Best], smallest: list[Best]) -> Finding | None:
    """Say which trainer to use, if the best at each undisturbed place support one."""
    fast, small = _winner_of(fastest), _winner_of(smallest)
    if small is None or not fastest or len(fastest) != len(smallest):  # a peak is missing somewhere
        return None
    cells = [best.cells[0] for best in fastest]
    text, where = f"train with {short_name(small)}", at_places(comparison, cells)
    if fast == small:
        text += f". Of the DP trainers it takes the least time and needs the least memory {where}."
    elif fast is None:
        if not all(small in best.trainers for best in fastest):
            return None
        text += f". Of the DP trainers it needs the least memory {where}, and no other is clearly faster."
    else:
        trades = [(best.winners[0], cell) for best in fastest for cell in best.cells if cell.trainer == small]
        known = [pair for pair in trades if all(PEAK in cell.figures for cell in pair)]
        if not known:
            return None
        one, other = max(known, key=lambda pair: size_of(pair[0]))
        text = (
            f"train with {short_name(fast)} if its memory fits, else with {short_name(small)}. At "
            f"{full_name(comparison, one)}, {short_name(fast)} takes {_cost(one)}, and {short_name(small)} "
            f"{_cost(other)}."
        )
    return Finding(USE, f"For {subject(comparison, cells)}: {text}", trainer=fast or small)


def _cost(cell: Cell) -> str:
    return f"{milliseconds(cell.figures[STEP])} and {size(cell.figures[PEAK])}"


_RECOMMENDED = {
    PEAK: "best/peak_allocated_mib",
    STEP: "best/step_ms_median",
    SAMPLES: "best/samples_per_s",
    MOVED: "best/moved_mib",
    ratio_name(PEAK): "best/peak_allocated_ratio",
    ratio_name(STEP): "best/step_ms_ratio",
    ratio_name(MOVED): "best/moved_ratio",
}


@dataclass(frozen=True)
class Recommended:
    """A trainer with its figures at one place, by metric name."""

    trainer: str
    place: str
    figures: dict[str, float]


def recommended(comparison: Comparison, findings: Iterable[Finding]) -> Recommended | None:
    """Return the trainer to use, or else the one with the lowest peak at the largest place.

    Its figures are those of the largest place where it has a peak, if possible an undisturbed one.
    """
    cells = competing(comparison.cells, PEAK)
    chosen = next((found.trainer for found in findings if found.trainer), None)
    if chosen is not None:
        cells = [cell for cell in cells if cell.trainer == chosen]
    cells = [cell for cell in cells if not comparison.is_disturbed_at(cell)] or cells
    if not cells:
        return None
    largest = max(map(size_of, cells))
    best = min((c for c in cells if size_of(c) == largest), key=lambda cell: cell.figures[PEAK])
    ratios = comparison.ratios(best)
    if comparison.is_disturbed_at(best):
        ratios = {name: ratio for name, ratio in ratios.items() if name not in RATIOS_OF_TIMES}
    known = best.figures | ratios
    figures = {shown: known[name] for name, shown in _RECOMMENDED.items() if name in known}
    return Recommended(best.trainer, full_name(comparison, best), figures)

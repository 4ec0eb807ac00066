"""The best DP trainer: at one place, and at all of them together.

Step times count as different beyond their spread (`intervals.py`); disturbed ones (`run.py`) do not rank.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell, competing
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import step_ratio
from dpprof.findings.comparison.places import at_places, first_names, full_name, size_of, subject
from dpprof.findings.sentences import Said, said
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.names import MOVED, PEAK, RATIOS_OF_TIMES, SAMPLES, STEP, ratio_name
from dpprof.vocabulary.grouping import grouped

# Peaks closer than this share count as the same: they are a few small tensors apart.
SAME_PEAK = 0.001
_LISTED = 3
# Words for the best and for the worst of several trainers, by metric.
WORDS = {STEP: ("fastest", "slowest"), PEAK: ("least", "most")}
# What a finding on a metric is about, as in `sentences.py`.
_ABOUT = {STEP: "time", PEAK: "memory"}


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


def marks(place: list[Cell], metric: str) -> list[str]:
    """Return the words for the step times or peaks of a place's cells; empty for neither best nor worst.

    A cell gets a word only if no other comes close: step times must differ by more than their spread.
    """
    best = fastest_at(place) if metric == STEP else smallest_at(place)
    if best is None:
        return ["" for _ in place]
    lowest, highest = WORDS[metric]
    *others, last = best.cells
    winner = best.winners[0] if len(best.winners) == 1 else None
    worst = last if all(_is_clearly_worse(last, other, metric) for other in others) else None
    return [lowest if cell is winner else highest if cell is worst else "" for cell in place]


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
    about, where = _ABOUT[metric], at_places(comparison, [best.cells[0] for best in bests])
    winner = _winner_of(bests)
    if winner is None:
        first = said(f"{about}.several", won=_won(comparison, bests, about, where))
    else:
        ratios = [comparison.ratio(best.winners[0], metric) for best in bests]
        first = said(
            f"{about}.first_and_standard" if any(ratios) else f"{about}.first",
            trainer=winner,
            where=where,
            ratios=[ratio for ratio in ratios if ratio is not None],
            lead=[best.cells[1].figures[metric] / best.cells[0].figures[metric] for best in bests],
        )
    are_single = any(len(cell.calm) == 1 for best in bests for cell in best.cells)
    is_once = metric == STEP and are_single and any(best.winners for best in bests)
    return Finding((first, said("time.once")) if is_once else (first,))


def _won(comparison: Comparison, bests: list[Best], about: str, everywhere: str) -> list[Said]:
    """Say who is best at which places, the winners of most places first."""
    groups, told = grouped(bests, lambda best: best.trainers), []
    for trainers, won in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = first_names([full_name(comparison, best.cells[0]) for best in won], _LISTED)
        where = everywhere if len(groups) == 1 else f"at {len(won)} of {len(bests)} places ({names})"
        kind = f"{about}.alike" if len(trainers) > 1 else f"{about}.won" if trainers else "too_few_steps"
        told.append(said(kind, trainers=trainers, trainer=next(iter(trainers), ""), where=where))
    return told


def choose(comparison: Comparison, fastest: list[Best], smallest: list[Best]) -> Finding | None:
    """Say which trainer to use, if the best at each undisturbed place support one."""
    fast, small = _winner_of(fastest), _winner_of(smallest)
    if small is None or not fastest or len(fastest) != len(smallest):  # a peak is missing somewhere
        return None
    cells = [best.cells[0] for best in fastest]
    of = {"subject": subject(comparison, cells), "where": at_places(comparison, cells)}
    if fast == small:
        return Finding.of("use.both", trainer=small, **of)
    if fast is None:
        is_fast = all(small in best.trainers for best in fastest)
        return Finding.of("use.smallest", trainer=small, **of) if is_fast else None
    trades = [(best.winners[0], cell) for best in fastest for cell in best.cells if cell.trainer == small]
    known = [pair for pair in trades if all(PEAK in cell.figures for cell in pair)]
    if not known:
        return None
    one, other = max(known, key=lambda pair: size_of(pair[0]))
    return Finding.of(
        "use.either",
        trainer=fast,
        smaller=small,
        place=full_name(comparison, one),
        ms=one.figures[STEP],
        mib=one.figures[PEAK],
        smaller_ms=other.figures[STEP],
        smaller_mib=other.figures[PEAK],
        **of,
    )


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

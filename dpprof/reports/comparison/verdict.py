"""What the figures say, in sentences: which trainer is fastest, which is smallest, and where the bytes are.

A sentence is written only where the data carries it: a step time counts as shorter if the difference is
larger than the spread (`intervals.py`), a trainer as the best only among those that finished at a place.
Where a cell was disturbed (`calm.py`) no sentence rests on time; memory does not depend on who else is there.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dpprof.figures.gradient_verdict import FAIL
from dpprof.reports.colors import words
from dpprof.reports.comparison.cells import MOVED, PEAK, STEP, Cell, Comparison
from dpprof.reports.comparison.estimates import fit_sentences, rests_on, without_paired
from dpprof.reports.comparison.growth import Line, lines
from dpprof.reports.comparison.intervals import FEWEST_STEPS, step_ratio
from dpprof.reports.comparison.savings import savings
from dpprof.vocabulary.formats import fixed, memory, milliseconds, signed, size
from dpprof.vocabulary.loops import DOCUMENTED
from dpprof.vocabulary.trainers import STANDARD, trainer_info

# Peaks closer than this are the same: a few small tensors apart.
_SAME_PEAK = 0.001
_LISTED_PLACES = 3
_LISTED_PARTS = 3
_LISTED_CELLS = 6
# Parts smaller than this share of a difference are not worth a word.
_SMALL_PART = 0.05
BOTH_BACKWARDS = "backward"


@dataclass(frozen=True)
class Finding:
    """A topic in a few words, what the figures say of it, and the points behind that, in sentences."""

    topic: str
    text: str
    points: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Best:
    """Who is best at one place: one trainer, several that cannot be told apart, or none as nothing tells."""

    cells: list[Cell]
    winners: list[Cell]


def verdict(comparison: Comparison) -> list[Finding]:
    """Every finding that the cells carry, the most useful first.

    Of an experiment both estimated and measured the measurement counts.
    """
    whole, comparison = comparison, without_paired(comparison)
    fastest = _bests(comparison.places, fastest_at)
    smallest = _bests(comparison.places, smallest_at)
    calm = [place for place in comparison.places if not comparison.is_disturbed_at(place[0])]
    found = [
        *_estimated(whole),
        *_choice(comparison, fastest, _bests(calm, smallest_at)),
        *_best(comparison, "Time", "takes the least time", fastest, STEP),
        *_best(comparison, "Memory", "needs the least memory", smallest, PEAK),
        *_savings(comparison),
        *_largest_batch(comparison),
        *_where(comparison),
    ]
    return found or [Finding("No verdict", _why_none(comparison))]


def _estimated(comparison: Comparison) -> Iterator[Finding]:
    """What of it was not measured, what that rests on, and whether it fits."""
    cells = [cell for cell in comparison.cells if cell.is_estimate and cell.finished]
    if not cells:
        return
    count = f"{len(cells)} of {len(comparison.cells)} experiments were not run"
    if len(cells) == len(comparison.cells):
        count = "Nothing was run"
    paired = len(comparison.cells) > len(without_paired(comparison).cells)
    points = rests_on([run for cell in cells for run in cell.finished])
    yield Finding(
        "Estimated",
        f"{count}: the figures are those of fake tensors, which have shapes and "
        "no data. What the allocator loses to fragmentation is not in them."
        + (" Where an experiment was measured too, the measurement counts below." if paired else "")
        + (" Estimates rest on this:" if points else ""),
        [f"{text[0].upper()}{text[1:]}." for text in points],
    )
    for text in fit_sentences(cells, lambda cell: _at(comparison, cell)):
        yield Finding("Fits", text)


def fastest_at(place: list[Cell]) -> Best | None:
    """The DP trainer with the shortest step at a place; None if fewer than two of them finished, or if a
    cell there was disturbed.
    """
    cells = _private(place, STEP)
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
    cells = _private(place, PEAK)
    if len(cells) < 2:
        return None
    lowest = cells[0].figures[PEAK]
    return Best(cells, [cell for cell in cells if cell.figures[PEAK] <= lowest * (1 + _SAME_PEAK)])


def parts_of_difference(more: dict[str, float], less: dict[str, float]) -> list[tuple[str, float]]:
    """What the difference between two sums is made of, the largest part first."""
    names = dict.fromkeys([*more, *less])
    parts = [(name, more.get(name, 0.0) - less.get(name, 0.0)) for name in names]
    return sorted(parts, key=lambda part: -abs(part[1]))


def fold_backward(by_phase: dict[str, float]) -> dict[str, float]:
    """Phases with the two backward passes of an algorithm taken together."""
    folded: dict[str, float] = {}
    for phase, value in by_phase.items():
        name = BOTH_BACKWARDS if phase.startswith("backward") else phase
        folded[name] = folded.get(name, 0.0) + value
    return folded


def _private(place: list[Cell], metric: str) -> list[Cell]:
    """The DP trainers with a figure, the lowest first; not those whose gradient is wrong."""
    cells = [c for c in place if trainer_info(c.trainer).is_private and c.finished and metric in c.figures]
    cells = [c for c in cells if c.gradient_check != FAIL]
    return sorted(cells, key=lambda cell: cell.figures[metric])


def _bests(places: list[list[Cell]], best_at: Callable[[list[Cell]], Best | None]) -> list[Best]:
    return [best for place in places if (best := best_at(place)) is not None]


def _alone_everywhere(bests: list[Best]) -> str | None:
    """The trainer that is best at every place, if there is one."""
    trainers = {tuple(cell.trainer for cell in best.winners) for best in bests}
    only = next(iter(trainers)) if len(trainers) == 1 else ()
    return only[0] if len(only) == 1 else None


def _choice(comparison: Comparison, fastest: list[Best], smallest: list[Best]) -> Iterator[Finding]:
    fast, small = _alone_everywhere(fastest), _alone_everywhere(smallest)
    if small is None or len(fastest) != len(smallest):  # a peak is missing somewhere
        return
    if fast is None:
        if fastest and all(small in {cell.trainer for cell in best.winners} for best in fastest):
            yield Finding(
                "Use",
                f"Train with {small}: of the DP trainers it takes the least memory, and none is faster "
                f"beyond the spread between steps {_everywhere(comparison, fastest)}.",
            )
        return
    if fast == small:
        yield Finding(
            "Use",
            f"Train with {fast}: of the DP trainers it takes the least time and the least memory "
            f"{_everywhere(comparison, fastest)}.",
        )
        return
    pairs = [(best.winners[0], cell) for best in fastest for cell in best.cells if cell.trainer == small]
    known = [pair for pair in pairs if all(PEAK in cell.figures for cell in pair)]
    if not known:
        return
    one, other = max(known, key=lambda pair: _size(pair[0]))
    yield Finding(
        "Use",
        f"Train with {fast} where its memory fits, with {small} where it does not: at {_at(comparison, one)} "
        f"{fast} takes {milliseconds(one.figures[STEP])} and {size(one.figures[PEAK])}, "
        f"{small} {milliseconds(other.figures[STEP])} and {size(other.figures[PEAK])}.",
    )


def _best(comparison: Comparison, topic: str, does: str, bests: list[Best], metric: str) -> Iterator[Finding]:
    if not bests:
        return
    alone = _alone_everywhere(bests)
    if alone is not None:
        text = f"Of the DP trainers {alone} {does} {_everywhere(comparison, bests)}"
        ratios = [comparison.ratio(best.winners[0], metric) for best in bests]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            text += f", {_range(known)} x StandardTrainer's"
        ahead = [best.cells[1].figures[metric] / best.cells[0].figures[metric] for best in bests]
        yield Finding(
            topic, f"{text}. The next one needs {_range(ahead)} x as much.{_caution(metric, bests)}"
        )
        return
    by_winners: dict[tuple[str, ...], list[Cell]] = {}
    for best in bests:
        by_winners.setdefault(tuple(c.trainer for c in best.winners), []).append(best.cells[0])
    ordered = sorted(by_winners.items(), key=lambda item: -len(item[1]))
    texts = []
    for winners, cells in ordered:
        where = f"at {len(cells)} of {len(bests)} places ({_list(comparison, cells)})"
        if len(ordered) == 1:
            where = _everywhere(comparison, bests)
        if len(winners) == 1:
            texts.append(f"{winners[0]} {does} {where}")
        elif winners:
            texts.append(f"{_and(list(winners))} cannot be told apart {where}")
        else:
            texts.append(f"there are too few timed steps to tell {where}")
    yield Finding(topic, f"Of the DP trainers {'; '.join(texts)}.{_caution(metric, bests)}")


def _caution(metric: str, bests: list[Best]) -> str:
    """What one run of each cell cannot tell of times."""
    told = any(best.winners for best in bests)
    once = any(len(cell.calm) == 1 for best in bests for cell in best.cells)
    if metric != STEP or not told or not once:
        return ""
    return " Each was measured in one run; --repeats 3 would show how much runs differ."


def _largest_batch(comparison: Comparison) -> Iterator[Finding]:
    """Where memory ran out; or, if it nowhere did, where the lines through the peaks would reach its end."""
    short = []
    for place in comparison.places:
        lack = [cell for cell in place if cell.failure == "oom"]
        if lack:
            fits = [cell.trainer for cell in place if cell.finished]
            text = f"at {_at(comparison, lack[0])} memory ran out with {_and([c.trainer for c in lack])}"
            short.append(f"{text}, while {_and(fits)} fitted" if fits else text)
    if short:
        more = f"; and at {len(short) - _LISTED_PLACES} more places" if len(short) > _LISTED_PLACES else ""
        text = "; ".join(short[:_LISTED_PLACES]) + more
        yield Finding("Largest batch", f"{text[0].upper()}{text[1:]}.")
        return
    tightest = min(_reaches(comparison), key=lambda found: min(r.batch for r in found), default=[])
    if len(tightest) < 2:
        return
    ordered = sorted(tightest, key=lambda found: -found.batch)
    first = ordered[0].line
    each = ", ".join(
        f"{found.line.trainer} {found.batch:,} ({size(found.line.slope)} a sample in {found.phase})"
        for found in ordered
    )
    yield Finding(
        "Largest batch",
        "No experiment ran out of memory. Lines through each phase's peak at batch "
        f"{_and(list(map(str, first.x)))} reach the {memory(ordered[0].limit_mib)} of this device, "
        f"for {first.model}, {first.place}, at no more than about: {each}. "
        "This is extrapolated, not measured; a peak can only grow faster than its line.",
    )


@dataclass(frozen=True)
class _Reach:
    """The batch at which the line through one phase's peaks reaches the device's memory."""

    batch: int
    limit_mib: float
    phase: str
    line: Line


def _reaches(comparison: Comparison) -> list[list[_Reach]]:
    """For DP trainers under settings that differ in the batch alone: what each reaches in its tightest phase.

    A line through the peaks of whole steps would mix phases, as the peak moves to another one with the batch.
    """
    phases = dict.fromkeys(phase for cell in comparison.cells for phase in cell.peak_by_phase)
    found: dict[tuple[str, str, str], dict[str, _Reach]] = {}
    for phase in phases:
        for line in lines(comparison, f"memory/peak_in_{phase}_mib", "batch_size"):
            limit = _limit(comparison, line)
            if limit is None or line.slope <= 0 or not trainer_info(line.trainer).is_private:
                continue
            batch = math.floor((limit - line.fixed) / line.slope + 1e-6)  # fitted: 9.999999 is 10
            reach = _Reach(batch, limit, phase, line)
            trainers = found.setdefault((line.model, line.place, line.source), {})
            known = trainers.get(line.trainer)
            trainers[line.trainer] = reach if known is None or reach.batch < known.batch else known
    return [list(trainers.values()) for trainers in found.values()]


def _limit(comparison: Comparison, line: Line) -> float | None:
    """The memory of the device that a line's cells ran on."""
    return next(
        (
            cell.limit_mib
            for cell in comparison.cells
            if cell.trainer == line.trainer
            and cell.source == line.source
            and cell.finished
            and not cell.is_estimate
        ),
        None,
    )


def _savings(comparison: Comparison) -> Iterator[Finding]:
    """What changes to the documented loop would save, of each trainer at the largest place where it ran."""
    documented = [cell for cell in comparison.cells if cell.finished and cell.settings["loop"] == DOCUMENTED]
    largest = {cell.trainer: cell for cell in sorted(documented, key=_size)}
    points = [
        f"{trainer} at {_at(comparison, cell)}: {text}"
        for trainer, cell in largest.items()
        if (text := savings(cell))
    ]
    if points:
        yield Finding(
            "Savings",
            "The documented loop keeps memory that a step does not need. These changes lower the peak "
            "(loop=lean makes them all):",
            points,
        )


def _where(comparison: Comparison) -> Iterator[Finding]:
    """Each trainer's extra bytes and time, at the largest place where it and StandardTrainer finished."""
    largest: dict[str, Cell] = {}
    for cell in comparison.cells:
        twin = comparison.standard(cell)
        if cell.trainer == STANDARD or not cell.finished or twin is None:
            continue
        if cell.trainer not in largest or _size(cell) > _size(largest[cell.trainer]):
            largest[cell.trainer] = cell
    for trainer, cell in largest.items():
        twin = comparison.standard(cell)
        assert twin is not None
        times = _disturbed_time(cell, twin) if comparison.is_disturbed_at(cell) else _time(cell, twin)
        points = [*_memory(cell, twin), *times, *_traffic(cell, twin)]
        if points:
            yield Finding(trainer, f"Against StandardTrainer at {_at(comparison, cell)}:", points)


def _memory(cell: Cell, twin: Cell) -> Iterator[str]:
    if PEAK not in cell.figures or PEAK not in twin.figures:
        return
    peak, standard = cell.figures[PEAK], twin.figures[PEAK]
    text = f"Memory: a peak of {size(peak)}{_in(cell)} against {size(standard)}{_in(twin)}"
    difference = peak - standard
    if abs(difference) > _SAME_PEAK * standard and cell.at_peak and twin.at_peak:
        text += f": {signed(difference)} MiB, by {_parts(cell.at_peak, twin.at_peak, difference)}"
    yield text + "."


def _time(cell: Cell, twin: Cell) -> Iterator[str]:
    ratio = step_ratio(cell, twin)
    if ratio is None:
        return
    spread = "" if ratio.between_runs else ", from the steps of one run each"
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}{spread}"
    if not ratio.is_clear:
        yield f"Time: {ratio.value:.2f} x the step ({interval}): no difference beyond the spread."
        return
    difference = cell.figures[STEP] - twin.figures[STEP]
    parts = _parts(fold_backward(cell.phase_ms), fold_backward(twin.phase_ms), difference)
    yield f"Time: {ratio.value:.2f} x the step ({interval}): {signed(difference)} ms, by {parts}."


def _disturbed_time(cell: Cell, twin: Cell) -> Iterator[str]:
    if STEP in cell.figures and STEP in twin.figures:
        ratio = cell.figures[STEP] / twin.figures[STEP]
        yield f"Time: {ratio:.2f} x the step, where runs were disturbed: repeat them before you rely on it."


def _traffic(cell: Cell, twin: Cell) -> Iterator[str]:
    if MOVED not in cell.figures or MOVED not in twin.figures:
        return
    difference = cell.figures[MOVED] - twin.figures[MOVED]
    phases = _parts(fold_backward(cell.moved_by_phase), fold_backward(twin.moved_by_phase), difference)
    classes = _parts(_by_class(cell), _by_class(twin), difference)
    yield (
        f"Traffic: {size(cell.figures[MOVED])} moved in a step, {signed(difference)} MiB: "
        f"by phase {phases}; by operator class {classes}."
    )


def _by_class(cell: Cell) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in cell.counted[0].moved:
        found[row.operator_class] = found.get(row.operator_class, 0.0) + row.mib
    return found


def _parts(more: dict[str, float], less: dict[str, float], difference: float) -> str:
    """The largest parts, and what these leave of the difference."""
    least = _SMALL_PART * abs(difference)
    parts = [part for part in parts_of_difference(more, less)[:_LISTED_PARTS] if abs(part[1]) > least]
    told = [f"{words(name)} {signed(part)}" for name, part in parts]
    rest = difference - sum(part for _, part in parts)
    if told and abs(rest) > least:
        told.append(f"the rest {signed(rest)}")
    return ", ".join(told) or "many small parts"


def _why_none(comparison: Comparison) -> str:
    if not any(cell.finished for cell in comparison.cells):
        return "No experiment finished."
    several = [place for place in comparison.places if sum(bool(cell.finished) for cell in place) > 1]
    if any(cell.is_disturbed for place in several for cell in place):
        return "Only step times were measured, and they were disturbed."
    if several:
        return (
            "Too little was measured to set trainers against each other: it takes peaks "
            f"(passes=clean,memory) or {FEWEST_STEPS} timed steps."
        )
    return "Nothing here was measured with two trainers under the same settings."


def _everywhere(comparison: Comparison, bests: list[Best]) -> str:
    if len(bests) == 1:
        return f"at {_at(comparison, bests[0].cells[0])}"
    if len(bests) < len(comparison.places):
        disturbed = any(map(comparison.is_disturbed_at, (place[0] for place in comparison.places)))
        calm = not any(comparison.is_disturbed_at(best.cells[0]) for best in bests)
        condition = " undisturbed" if disturbed and calm else ""
        return f"at all {len(bests)} places where several of them finished{condition}"
    return f"at all {len(bests)} places"


def _at(comparison: Comparison, cell: Cell) -> str:
    return f"{comparison.model(cell).label}, {comparison.place_name(cell)}"


def _list(comparison: Comparison, cells: list[Cell]) -> str:
    shown = [_at(comparison, cell) for cell in cells[:_LISTED_PLACES]]
    if len(cells) > _LISTED_PLACES:
        shown.append(f"{len(cells) - _LISTED_PLACES} more")
    return "; ".join(shown)


def _size(cell: Cell) -> tuple[int, int]:
    return (cell.num_parameters or 0, cell.config.batch_size * cell.config.seq_len)


def _in(cell: Cell) -> str:
    phase = cell.counted[0].peak_phase
    return f" in {phase}" if phase else ""


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _range(values: list[float]) -> str:
    low, high = _times(min(values)), _times(max(values))
    return low if low == high else f"{low} to {high}"


def _times(ratio: float) -> str:
    """A ratio; one close to 1 with as many decimals as tell it from 1."""
    return fixed(ratio, 2 if abs(ratio - 1) >= 0.005 or ratio == 1 else 4)

"""A DP trainer's extra memory, time and traffic by part, and the savings of a lean training loop."""

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import step_ratio
from dpprof.findings.comparison.places import full_name, size_of
from dpprof.findings.verdict.best import SAME_PEAK
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.names import MOVED, PEAK, STEP
from dpprof.vocabulary.colors import words
from dpprof.vocabulary.formats import signed, size
from dpprof.vocabulary.grouping import summed
from dpprof.vocabulary.loops import ALL, DOCUMENTED, SAVINGS
from dpprof.vocabulary.trainers import STANDARD, short_name, trainer_info
from dpprof.vocabulary.units import MIB

_BOTH_BACKWARDS = "backward"
_BACKWARDS = (_BOTH_BACKWARDS, "backward_norms", "backward_weighted")
_LARGEST = 3
# Parts smaller than this share of a difference are not named.
_SMALL_PART = 0.05


def parts_of(more: dict[str, float], less: dict[str, float], difference: float) -> str:
    """Name the largest parts of a difference, which the sums of `more` and `less` need not add up to."""
    least = _SMALL_PART * abs(difference)
    parts = {name: more.get(name, 0.0) - less.get(name, 0.0) for name in dict.fromkeys([*more, *less])}
    largest = sorted(parts, key=lambda name: -abs(parts[name]))[:_LARGEST]
    named = {name: parts[name] for name in largest if abs(parts[name]) > least}
    told = [f"{words(name)} {signed(part)}" for name, part in named.items()]
    rest = difference - sum(named.values())
    if named and abs(rest) > least:
        told.append(f"the rest {signed(rest)}")
    return ", ".join(told) or "many small parts"


def fold_backward(by_phase: dict[str, float]) -> dict[str, float]:
    """Return phases with the two backward passes of an algorithm added up."""
    named = ((_BOTH_BACKWARDS if name in _BACKWARDS else name, value) for name, value in by_phase.items())
    return summed(named)


def extras(comparison: Comparison) -> list[Finding]:
    """Tell each DP trainer's extra cost at the largest place where it and StandardTrainer finished.

    Each has a point for memory, time and traffic, as far as they were measured.
    """
    largest: dict[str, tuple[Cell, Cell]] = {}
    for cell in comparison.cells:
        twin = comparison.standard(cell)
        if not trainer_info(cell.trainer).is_private or not cell.finished or twin is None:
            continue
        if cell.trainer not in largest or size_of(cell) > size_of(largest[cell.trainer][0]):
            largest[cell.trainer] = (cell, twin)
    found = []
    for trainer, (cell, twin) in largest.items():
        time = _disturbed_time if comparison.is_disturbed_at(cell) else _time
        points = [point for point in (_memory(cell, twin), time(cell, twin), _traffic(cell, twin)) if point]
        against = f"Against {short_name(STANDARD)} at {full_name(comparison, cell)}:"
        found += [Finding(short_name(trainer), against, points, explains=True)] if points else []
    return found


def _memory(cell: Cell, twin: Cell) -> str:
    if PEAK not in cell.figures or PEAK not in twin.figures:
        return ""
    peak, standard = cell.figures[PEAK], twin.figures[PEAK]
    text = f"Memory: a peak of {_peak(cell)} against {_peak(twin)}"
    if abs(peak - standard) > SAME_PEAK * standard and cell.at_peak and twin.at_peak:
        parts = parts_of(cell.at_peak, twin.at_peak, peak - standard)
        text += f": {signed(peak - standard)} MiB, by {parts}"
    return f"{text}."


def _peak(cell: Cell) -> str:
    """Tell a peak, and the phase in which the ledger sees it."""
    phase = cell.representative[0].peak_phase
    return size(cell.figures[PEAK]) + (f" in {phase}" if phase else "")


def _time(cell: Cell, twin: Cell) -> str:
    ratio = step_ratio(cell, twin)
    if ratio is None:
        return ""
    told = "no clear difference"
    if ratio.is_clear:
        difference = cell.figures[STEP] - twin.figures[STEP]
        parts = parts_of(fold_backward(cell.phase_ms), fold_backward(twin.phase_ms), difference)
        told = f"{signed(difference)} ms, by {parts}"
    spread = "" if ratio.between_runs else ", from one run each"
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}{spread}"
    return f"Time: {ratio.value:.2f} x the step ({interval}): {told}."


def _disturbed_time(cell: Cell, twin: Cell) -> str:
    if STEP not in cell.figures or STEP not in twin.figures:
        return ""
    ratio = cell.figures[STEP] / twin.figures[STEP]
    return f"Time: {ratio:.2f} x the step, but runs were disturbed: repeat them before you rely on this."


def _traffic(cell: Cell, twin: Cell) -> str:
    if MOVED not in cell.figures or MOVED not in twin.figures:
        return ""
    difference = cell.figures[MOVED] - twin.figures[MOVED]
    by_phase = parts_of(fold_backward(cell.moved_by_phase), fold_backward(twin.moved_by_phase), difference)
    by_class = parts_of(_by_class(cell), _by_class(twin), difference)
    return (
        f"Traffic: {size(cell.figures[MOVED])} moved in a step, {signed(difference)} MiB: by phase "
        f"{by_phase}; by operator class {by_class}."
    )


def _by_class(cell: Cell) -> dict[str, float]:
    return summed((row.operator_class, row.mib) for row in cell.representative[0].moved)


# Savings below this share of the peak are not worth a change.
_SMALL_SAVING = 0.001


def savings(comparison: Comparison) -> Finding | None:
    """Tell what changes to the documented loop would save each trainer at the largest place where it ran."""
    documented = [cell for cell in comparison.cells if cell.finished and cell.settings["loop"] == DOCUMENTED]
    largest = {cell.trainer: cell for cell in sorted(documented, key=size_of)}
    told = {cell.trainer: (full_name(comparison, cell), saving(cell)) for cell in largest.values()}
    points = [f"{short_name(name)} at {place}: {said}" for name, (place, said) in told.items() if said]
    text = (
        "The documented loop keeps memory that a step does not need. These changes lower the peak; "
        "loop=lean makes them all:"
    )
    return Finding("Savings", text, points, explains=True) if points else None


def saving(cell: Cell) -> str:
    """Name the changes worth making at a cell, alone and together; empty without any.

    Together they need not save the sum, as the peak moves.
    """
    least = max(_SMALL_SAVING * cell.figures.get(PEAK, 0.0), 1 / MIB)
    saved = {name: cell.figures.get(f"memory/saving_{name}_mib", 0.0) for name in (*SAVINGS, ALL)}
    alone = {name: saved[name] for name in SAVINGS if saved[name] > least}
    together = saved[ALL] if saved[ALL] > least else 0.0
    if together and together != sum(alone.values()) and together != max(alone.values(), default=0.0):
        alone = {name: saved[name] for name in SAVINGS}
    if not alone:
        return ""
    told = [f"{SAVINGS[name]}: {_lower(mib)}" for name, mib in alone.items()]
    told += [f"both: {_lower(together)}"] if together and len(alone) > 1 else []
    return f"{'; '.join(told)}."


def _lower(mib: float) -> str:
    return f"-{size(mib)}" if mib > 0 else "nothing by itself"

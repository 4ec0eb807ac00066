"""A DP trainer's extra memory, time and traffic by part, and the savings of a lean training loop."""

from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import Ratio, step_ratio
from dpprof.findings.comparison.places import full_name, size_of
from dpprof.findings.sentences import Said, said
from dpprof.findings.verdict.best import SAME_PEAK
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.names import MOVED, PEAK, STEP
from dpprof.vocabulary.colors import words
from dpprof.vocabulary.formats import signed
from dpprof.vocabulary.grouping import grouped, summed
from dpprof.vocabulary.loops import ALL, DOCUMENTED, SAVINGS
from dpprof.vocabulary.trainers import trainer_info
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


@dataclass(frozen=True)
class Added:
    """Extra cost of a DP trainer's `cell` over its standard `twin`, and its largest parts in words.

    None where one of them was not measured, and for times also where runs were disturbed; `ms` is None too
    where the difference is within the spread. Parts that were not recorded are empty.
    """

    cell: Cell
    twin: Cell
    mib: float | None
    categories: str
    ms: float | None
    ratio: Ratio | None
    phases: str
    moved_mib: float | None
    moved_phases: str
    moved_classes: str


def added(comparison: Comparison) -> list[Added]:
    """Return each DP trainer's extra cost at the largest place where it and StandardTrainer finished."""
    largest: dict[str, tuple[Cell, Cell]] = {}
    for cell in comparison.cells:
        twin = comparison.standard(cell)
        if not trainer_info(cell.trainer).is_private or not cell.finished or twin is None:
            continue
        if cell.trainer not in largest or size_of(cell) > size_of(largest[cell.trainer][0]):
            largest[cell.trainer] = (cell, twin)
    found = [_added(comparison, *pair) for pair in largest.values()]
    return [one for one in found if one.mib is not None or one.ratio is not None or one.moved_mib is not None]


def _added(comparison: Comparison, cell: Cell, twin: Cell) -> Added:
    mib, step_ms, moved_mib = (_difference(cell, twin, name) for name in (PEAK, STEP, MOVED))
    is_calm = not comparison.is_disturbed_at(cell)
    ratio = step_ratio(cell, twin) if is_calm else None
    is_clear = ratio is not None and ratio.is_clear and step_ms is not None
    is_small = mib is None or abs(mib) <= SAME_PEAK * twin.figures[PEAK]
    return Added(
        cell=cell,
        twin=twin,
        mib=mib,
        categories=_parts(cell.at_peak, twin.at_peak, None if is_small else mib),
        ms=step_ms if is_clear else None,
        ratio=ratio,
        phases=_parts(
            fold_backward(cell.phase_ms), fold_backward(twin.phase_ms), step_ms if is_clear else None
        ),
        moved_mib=moved_mib,
        moved_phases=_parts(
            fold_backward(cell.moved_by_phase), fold_backward(twin.moved_by_phase), moved_mib
        ),
        moved_classes=_parts(_by_class(cell), _by_class(twin), moved_mib),
    )


def _difference(cell: Cell, twin: Cell, name: str) -> float | None:
    both = name in cell.figures and name in twin.figures
    return cell.figures[name] - twin.figures[name] if both else None


def _parts(more: dict[str, float], less: dict[str, float], difference: float | None) -> str:
    """Name the parts of a difference; empty without one, or if a side's parts were not recorded."""
    return parts_of(more, less, difference) if difference is not None and more and less else ""


def _by_class(cell: Cell) -> dict[str, float]:
    return summed((row.operator_class, row.mib) for row in cell.representative[0].moved)


# Savings below this share of the peak are not worth a change.
_SMALL_SAVING = 0.001


def savings(comparison: Comparison) -> Finding | None:
    """Tell what changes to the documented loop would save each trainer at the largest place where it ran."""
    documented = [cell for cell in comparison.cells if cell.finished and cell.settings["loop"] == DOCUMENTED]
    largest = {cell.trainer: cell for cell in sorted(documented, key=size_of)}
    found = [(cell.trainer, full_name(comparison, cell), saving(cell)) for cell in largest.values()]
    alike = grouped((one for one in found if one[2]), lambda one: (one[1], *map(str, one[2])))
    points = tuple(
        said("savings.of", trainers=[name for name, _, _ in same], place=same[0][1], savings=same[0][2])
        for same in alike.values()
    )
    return Finding((said("savings"),), points) if points else None


def saving(cell: Cell) -> list[Said]:
    """Name the changes worth making at a cell, alone and together.

    Together they need not save the sum, as the peak moves.
    """
    least = max(_SMALL_SAVING * cell.figures.get(PEAK, 0.0), 1 / MIB)
    saved = {name: cell.figures.get(f"memory/saving_{name}_mib", 0.0) for name in (*SAVINGS, ALL)}
    alone = {name: saved[name] for name in SAVINGS if saved[name] > least}
    together = saved[ALL] if saved[ALL] > least else 0.0
    if together and together != sum(alone.values()) and together != max(alone.values(), default=0.0):
        alone = {name: saved[name] for name in SAVINGS}
    told = [
        said("saved" if mib > 0 else "saved.nothing", change=SAVINGS[name], mib=mib)
        for name, mib in alone.items()
    ]
    return [*told, said("saved.both", mib=together)] if together and len(alone) > 1 else told

"""What a lean training loop would save: each change to the loop with its bytes, from steps that made it."""

from dataclasses import dataclass

from dpprof.figures.names import PEAK
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import full_name, size_of
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.loops import ALL, DOCUMENTED, SAVINGS
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MIB

# Savings below this share of the peak are not worth a change.
_SMALL = 0.001


@dataclass(frozen=True)
class Saving:
    """What changes to the documented loop lower one cell's peak by.

    `alone` is what each change saves alone, in MiB by its name. Together they may save more or less than the
    sum, as the peak moves: `together`, None where one change does it all.
    """

    trainer: str
    place: str
    alone: dict[str, float]
    together: float | None


@dataclass(frozen=True)
class Savings:
    """What each trainer would save at the largest place where it ran."""

    cells: tuple[Saving, ...]


def savings(comparison: Comparison) -> Savings | None:
    """The savings of every trainer that has some worth making."""
    documented = [cell for cell in comparison.cells if cell.finished and cell.settings["loop"] == DOCUMENTED]
    largest = {cell.trainer: cell for cell in sorted(documented, key=size_of)}
    found = [saving(cell, full_name(comparison, cell)) for cell in largest.values()]
    worth = tuple(one for one in found if one is not None)
    return Savings(worth) if worth else None


def saving(cell: Cell, place: str) -> Saving | None:
    """The changes worth making at a cell; None if none is."""
    least = max(_SMALL * cell.figures.get(PEAK, 0.0), 1 / MIB)
    saved = {name: cell.figures.get(f"memory/saving_{name}_mib", 0.0) for name in (*SAVINGS, ALL)}
    alone = {name: saved[name] for name in SAVINGS if saved[name] > least}
    together = saved[ALL] if saved[ALL] > least else 0.0
    if together and together != sum(alone.values()) and together != max(alone.values(), default=0.0):
        alone = {name: saved[name] for name in SAVINGS}
    if not alone:
        return None
    return Saving(cell.trainer, place, alone, together if together and len(alone) > 1 else None)


def say(found: Savings) -> Finding[Savings]:
    """A point for each trainer."""
    return Finding(
        "Savings",
        "The documented loop keeps memory that a step does not need. These changes lower the peak; "
        "loop=lean makes them all:",
        found,
        [f"{short_name(one.trainer)} at {one.place}: {in_words(one)}" for one in found.cells],
    )


def in_words(found: Saving) -> str:
    """The changes and what they save, in one sentence."""
    told = [f"{SAVINGS[name]}: {_lower(mib)}" for name, mib in found.alone.items()]
    if found.together is not None:
        told.append(f"both: {_lower(found.together)}")
    return f"{'; '.join(told)}."


def _lower(mib: float) -> str:
    return f"-{size(mib)}" if mib > 0 else "nothing by itself"

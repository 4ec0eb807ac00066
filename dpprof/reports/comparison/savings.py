"""What a lean training loop would save: each change to the loop with its bytes, from steps that made it."""

from dpprof.reports.comparison.cells import PEAK, Cell
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.loops import ALL, SAVINGS
from dpprof.vocabulary.units import MIB

# Savings below this share of the peak are not worth a change.
_SMALL = 0.001


def savings(cell: Cell) -> str | None:
    """The changes worth making at a cell, each with what it saves, in one sentence; None if none is.

    Each is what it saves alone. Together they may save more or less than the sum, as the peak moves.
    """
    least = max(_SMALL * cell.figures.get(PEAK, 0.0), 1 / MIB)
    saved = {name: cell.figures.get(f"memory/saving_{name}_mib", 0.0) for name in (*SAVINGS, ALL)}
    alone = {name: saved[name] for name in SAVINGS if saved[name] > least}
    together = saved[ALL] if saved[ALL] > least else 0.0
    if together and together != sum(alone.values()) and together != max(alone.values(), default=0.0):
        alone = {name: saved[name] for name in SAVINGS}
    told = [f"{SAVINGS[name]}: {_lower(mib)}" for name, mib in alone.items()]
    if together and len(told) > 1:
        told.append(f"both: {_lower(together)}")
    return f"{'; '.join(told)}." if told else None


def _lower(mib: float) -> str:
    return f"-{size(mib)}" if mib > 0 else "nothing by itself"

"""What a lean training loop would save: each change to the loop with its bytes, from steps that made it."""

from dpprof.formats import size
from dpprof.loops import ALL, SAVINGS
from dpprof.metrics import MIB
from dpprof.reports.comparison.cells import PEAK, Cell

# Savings below this share of the peak are not worth a change.
_SMALL = 0.001


def savings(cell: Cell) -> str | None:
    """The changes worth making at a cell, each with its MiB, in one sentence; None if none is.

    Each is what it saves alone. Together they may save more or less than the sum, as the peak moves.
    """
    saved = {name: cell.figures.get(f"memory/saving_{name}_mib", 0.0) for name in (*SAVINGS, ALL)}
    least = _SMALL * cell.figures.get(PEAK, 0.0)
    if not cell.finished or max(saved.values()) <= max(least, 1 / MIB):
        return None
    told = [f"{advice}: -{size(saved[name])}" for name, advice in SAVINGS.items() if saved[name] > least]
    if saved[ALL] > least and len(told) != 1:
        told.append(f"{'both' if len(SAVINGS) == 2 else 'all'} together: -{size(saved[ALL])}")
    return f"{cell.trainer}: {'; '.join(told)}."

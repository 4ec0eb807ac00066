"""Where memory ran out, and with which trainers. `answers.py` has the largest batch of each."""

from collections.abc import Sequence

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name
from dpprof.findings.verdict.finding import Finding
from dpprof.record.record import FailureKind
from dpprof.vocabulary.formats import joined
from dpprof.vocabulary.trainers import short_name

_TOPIC = "Largest batch"
_LISTED = 3


def shortages(comparison: Comparison) -> Finding | None:
    """Say where memory ran out, and with which trainers; None if it did nowhere."""
    texts = []
    for place in comparison.places:
        lack = [cell for cell in place if cell.failure == FailureKind.OOM]
        if lack:
            fits = [cell for cell in place if cell.finished]
            fitted = f", while {_named(fits)} fitted" if fits else ""
            texts.append(f"at {full_name(comparison, lack[0])} memory ran out with {_named(lack)}{fitted}")
    if not texts:
        return None
    more = f"; and at {len(texts) - _LISTED} more places" if len(texts) > _LISTED else ""
    text = "; ".join(texts[:_LISTED]) + more
    return Finding(_TOPIC, f"{text[0].upper()}{text[1:]}.")


def _named(cells: Sequence[Cell]) -> str:
    return joined([short_name(cell.trainer) for cell in cells])

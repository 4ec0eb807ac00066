"""Places where memory ran out, and with which trainers. `answers.py` has the largest batch of each."""

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name
from dpprof.findings.sentences import said
from dpprof.findings.verdict.finding import Finding
from dpprof.record.record import FailureKind
from dpprof.vocabulary.formats import counted

_LISTED = 3


def shortages(comparison: Comparison) -> Finding | None:
    """Say where memory ran out, and with which trainers; None if it did nowhere."""
    found = []
    for place in comparison.places:
        lack = [cell for cell in place if cell.failure == FailureKind.OOM]
        fitting = [cell.trainer for cell in place if cell.finished]
        if lack:
            where, trainers = full_name(comparison, lack[0]), [cell.trainer for cell in lack]
            kind = "out_of_memory.but_not_all" if fitting else "out_of_memory"
            found.append(said(kind, place=where, trainers=trainers, fitting=fitting))
    if len(found) > _LISTED:
        found[_LISTED:] = [
            said("out_of_memory.elsewhere", places=counted(len(found) - _LISTED, "more place"))
        ]
    return Finding.of("batch", lacks=found) if found else None

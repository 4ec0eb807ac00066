"""What the ranks of a step send each other."""

from dataclasses import dataclass
from typing import Self

from dpprof.config.flat import from_flat
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class CommunicationFigures:
    """What each of several ranks sends in a step, and in how many calls, by phase: over a ring, as
    `vocabulary/parallel.py` counts it.
    """

    sent_mib: dict[str, float]
    calls: dict[str, int]

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self | None:
        """The figures of a record; None for one rank alone."""
        if from_flat(record.config).world_size == 1:
            return None
        sent: dict[str, float] = {}
        calls: dict[str, int] = {}
        for row in ledger.collectives:
            if row.phase is not None:
                sent[row.phase] = sent.get(row.phase, 0.0) + mib(row.sent)
                calls[row.phase] = calls.get(row.phase, 0) + row.calls
        return cls(sent, calls)

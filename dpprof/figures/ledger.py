"""What the ledger says of the whole step, and whether it can be trusted."""

import statistics
from dataclasses import dataclass
from typing import Self

from dpprof.figures.theory import flops_in_theory, flops_of_layers
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.categories import CATEGORIES, OF_RANKS
from dpprof.vocabulary.units import mib

# What the allocator held at the peak beyond what the ledger saw.
UNTRACKED = "untracked"
_UNEXPLAINED_LIMIT_PCT = 2.0


@dataclass(frozen=True)
class LedgerFigures:
    """Peak and traffic of the step under the ledger.

    `at_peak_mib` goes by category, those that hold something, `untracked` included. `unexplained_pct` is how
    much of the allocator's peak the ledger did not see; None for an estimate, or without both figures.
    `slowdown` is how many times the median step the one under the ledger took. `flops_of_layers` leaves
    attention out, as `flops_in_theory` does, which is None where no formula is known. `intensity` is FLOP
    per byte.
    """

    peak_mib: float
    at_peak_mib: dict[str, float]
    unexplained_pct: float | None
    slowdown: float | None
    moved_mib: float
    flops: int
    flops_of_layers: int
    flops_in_theory: int | None
    intensity: float | None

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self:
        """The figures of a record's ledger."""
        moved = ledger.moved_in_step
        median_s = statistics.median(record.step_s) if record.step_s and not record.step_samples else None
        return cls(
            peak_mib=mib(ledger.peak),
            at_peak_mib={category: mib(held) for category, held in _at_peak(record, ledger).items()},
            unexplained_pct=_unexplained_pct(record, ledger),
            slowdown=None if median_s is None else ledger.step_s / median_s,
            moved_mib=mib(moved.num_bytes),
            flops=moved.flops,
            flops_of_layers=flops_of_layers(ledger),
            flops_in_theory=flops_in_theory(record, ledger),
            intensity=moved.flops / moved.num_bytes if moved.num_bytes else None,
        )

    @property
    def all_at_peak_mib(self) -> dict[str, float]:
        """The bytes at the peak by category, with a 0 for each usual one that holds nothing."""
        usual = (category for category in CATEGORIES if category not in OF_RANKS)
        return dict.fromkeys(usual, 0.0) | self.at_peak_mib

    @property
    def doubt(self) -> str | None:
        """Why its categories should not be trusted, if so."""
        return ledger_doubt(self.unexplained_pct)


def ledger_doubt(unexplained_pct: float | None) -> str | None:
    """What to say of a ledger that leaves too much of the allocator's peak unexplained, if it does."""
    if unexplained_pct is None or abs(unexplained_pct) <= _UNEXPLAINED_LIMIT_PCT:
        return None
    side = "less" if unexplained_pct > 0 else "more"
    return (
        f"the ledger sees {abs(unexplained_pct):.1f} % {side} than the allocator's peak "
        f"(limit {_UNEXPLAINED_LIMIT_PCT:g} %): its categories do not tell the whole memory"
    )


def _unexplained_pct(record: Record, ledger: LedgerResult) -> float | None:
    truth = record.memory.peak_allocated
    return None if not truth or record.is_estimate else 100 * (truth - ledger.peak) / truth


def _at_peak(record: Record, ledger: LedgerResult) -> dict[str, int]:
    untracked = (record.memory.peak_allocated or 0) - ledger.peak
    return ledger.at_peak | ({UNTRACKED: untracked} if untracked > 0 else {})

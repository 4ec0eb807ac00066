"""Ledger figures of the whole step, and whether they can be trusted."""

import statistics
from dataclasses import dataclass, replace
from typing import Self

from dpprof.config.flat import from_flat
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.categories import CATEGORIES, OF_RANKS
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.units import mib

# Category of the bytes that the allocator held at the peak and the ledger did not see.
UNTRACKED = "untracked"
_UNEXPLAINED_LIMIT_PCT = 2.0


@dataclass(frozen=True)
class LedgerFigures:
    """Peak of the step under the ledger.

    `at_peak_mib` goes by category, without empty ones and with `untracked`. `unexplained_pct` is the share of
    the allocator's peak that the ledger did not see, without what is known to come from the allocator itself;
    None for an estimate or if either figure is missing.
    `slowdown` is the step time under the ledger over the median step.
    """

    peak_mib: float
    at_peak_mib: dict[str, float]
    unexplained_pct: float | None
    slowdown: float | None

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self:
        """Return the figures of a record's ledger."""
        truth = record.memory.peak_allocated or 0
        untracked = truth - ledger.peak
        unexplained = untracked - sum(ledger.from_allocator.values())
        at_peak = ledger.at_peak | ({UNTRACKED: untracked} if untracked > 0 else {})
        median_s = statistics.median(record.step_s) if record.step_s and not record.step_samples else None
        return cls(
            peak_mib=mib(ledger.peak),
            at_peak_mib={category: mib(held) for category, held in at_peak.items()},
            unexplained_pct=100 * unexplained / truth if truth and not record.is_estimate else None,
            slowdown=None if median_s is None else ledger.step_s / median_s,
        )

    @property
    def all_at_peak_mib(self) -> dict[str, float]:
        """MiB at the peak by category, with 0 for each usual category that holds nothing."""
        usual = (category for category in CATEGORIES if category not in OF_RANKS)
        return dict.fromkeys(usual, 0.0) | self.at_peak_mib


def ledger_doubt(unexplained_pct: float | None) -> str | None:
    """Return a warning if the ledger leaves too much of the allocator's peak unexplained, else None."""
    if unexplained_pct is None or abs(unexplained_pct) <= _UNEXPLAINED_LIMIT_PCT:
        return None
    side = "less" if unexplained_pct > 0 else "more"
    return (
        f"the ledger sees {abs(unexplained_pct):.1f} % {side} than the allocator's peak "
        f"(limit {_UNEXPLAINED_LIMIT_PCT:g} %): its categories do not tell the whole memory"
    )


def flops_in_theory(record: Record, ledger: LedgerResult) -> int | None:
    """Return a step's FLOPs without attention by the trainer's formula, if it has one."""
    config = from_flat(record.config)
    info = TRAINERS.get(config.trainer)
    if info is None or info.theory is None or not ledger.layers:
        return None
    options = config.trainer_options
    steps = config.accumulation_steps
    calls = (
        replace(row, norm_flops=(row.norm_flops or 0) * steps, sum_flops=(row.sum_flops or 0) * steps)
        for row in ledger.layers
    )
    return sum(info.theory(call, options) for call in calls)


def flops_of_layers(ledger: LedgerResult) -> int:
    """Return the counted FLOPs without attention."""
    return sum(row.flops for row in ledger.traffic if row.operator_class != "attention")

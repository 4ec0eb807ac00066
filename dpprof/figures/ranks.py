"""How the ranks of an experiment did together: the slowest, the largest, and what communication cost them."""

import statistics
from dataclasses import dataclass
from typing import Self

from dpprof.record.record import RankResult, Record
from dpprof.vocabulary.units import mib, ms


@dataclass(frozen=True)
class RankFigures:
    """One rank: the most memory that it held and in which phase, its step with the others and alone, both
    medians, and its phases with the others.
    """

    rank: int
    host: str
    peak_mib: float | None
    phase: str | None
    step_ms: float | None
    alone_ms: float | None
    phases_ms: dict[str, float]

    @classmethod
    def of(cls, found: RankResult) -> Self:
        """The figures of what a rank measured, or what was estimated of it."""
        return cls(
            rank=found.rank,
            host=found.host,
            peak_mib=None if found.peak is None else mib(found.peak),
            phase=found.phase,
            step_ms=_median_ms(found.step_s),
            alone_ms=_median_ms(found.alone_step_s),
            phases_ms={name: ms(statistics.median(seconds)) for name, seconds in found.phase_s.items()},
        )

    @property
    def exposed_ms(self) -> float | None:
        """How much longer its step takes with the others: communication, and waiting, that no computation
        hides.
        """
        if self.step_ms is None or self.alone_ms is None:
            return None
        return self.step_ms - self.alone_ms


@dataclass(frozen=True)
class RanksFigures:
    """Each rank, the slowest, and the one that held the most.

    `imbalance` is the longest step alone over the mean of all ranks'. `efficiency_pct` is the throughput of
    all ranks in percent of what they would reach if each were as fast as alone.
    """

    each: list[RankFigures]
    slowest: RankFigures | None
    largest: RankFigures | None
    imbalance: float | None
    efficiency_pct: float | None

    @classmethod
    def of(cls, record: Record) -> Self | None:
        """The figures of a record; None for one rank alone."""
        each = [RankFigures.of(found) for found in record.ranks]
        if not each:
            return None
        timed = [rank for rank in each if rank.step_ms is not None]
        slowest = max(timed, key=lambda rank: rank.step_ms or 0.0, default=None)
        alone = [rank.alone_ms for rank in each if rank.alone_ms is not None]
        mean_ms = statistics.fmean(alone) if alone else None
        unhindered_ms = statistics.harmonic_mean(alone) if alone else None  # throughputs add up
        return cls(
            each=each,
            slowest=slowest,
            largest=max(
                (rank for rank in each if rank.peak_mib is not None),
                key=lambda rank: rank.peak_mib or 0.0,
                default=None,
            ),
            imbalance=max(alone) / mean_ms if mean_ms else None,
            efficiency_pct=100 * unhindered_ms / slowest.step_ms
            if unhindered_ms and slowest is not None and slowest.step_ms
            else None,
        )

    @property
    def exposed_pct(self) -> float | None:
        """The slowest rank's exposed communication in percent of its step."""
        if self.slowest is None or self.slowest.exposed_ms is None or not self.slowest.step_ms:
            return None
        return 100 * self.slowest.exposed_ms / self.slowest.step_ms


def _median_ms(seconds: list[float]) -> float | None:
    return ms(statistics.median(seconds)) if seconds else None

"""All figures of a record as typed objects; `names.py` gives them metric names."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from dpprof.config.flat import from_flat
from dpprof.record.figures.counters import CounterFigures, StepCounters
from dpprof.record.figures.estimate import EstimateFigures
from dpprof.record.figures.ledger import LedgerFigures
from dpprof.record.ledger import Moved
from dpprof.record.record import RankResult, Record
from dpprof.vocabulary.units import mib, ms


def _known_mib(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else mib(num_bytes)


def _median_ms(seconds: list[float] | None) -> float | None:
    return ms(statistics.median(seconds)) if seconds else None


@dataclass(frozen=True)
class PhaseFigures:
    """One phase; None if not measured.

    `ms` is the median of the timed steps. The ledger gives `peak_mib`, bytes read and written by operators,
    and FLOPs; the allocator gives `allocator_peak_mib`, the hardware `counters`.
    """

    ms: float | None = None
    peak_mib: float | None = None
    allocator_peak_mib: float | None = None
    read_mib: float | None = None
    written_mib: float | None = None
    flops: float | None = None
    counters: CounterFigures | None = None

    @property
    def moved_mib(self) -> float | None:
        """MiB read and written together."""
        return None if self.read_mib is None or self.written_mib is None else self.read_mib + self.written_mib


def phase_figures(record: Record, counters: Mapping[str | None, CounterFigures]) -> dict[str, PhaseFigures]:
    """Return the figures of each known phase: timed ones first, then those of the ledger and the counters."""
    ledger = record.ledger
    peaks = ledger.phase_peak if ledger else {}
    moved = ledger.moved(by=lambda row: row.phase) if ledger else {}
    names = dict.fromkeys([*record.phase_s, *peaks, *(phase for phase in counters if phase is not None)])
    found = {}
    for phase in names:
        bytes_moved = moved.get(phase, Moved()) if phase in peaks else None
        found[phase] = PhaseFigures(
            ms=_median_ms(record.phase_s.get(phase)),
            peak_mib=mib(peaks[phase].num_bytes) if phase in peaks else None,
            allocator_peak_mib=_known_mib(record.memory.phase_peak.get(phase)),
            read_mib=None if bytes_moved is None else mib(bytes_moved.read),
            written_mib=None if bytes_moved is None else mib(bytes_moved.written),
            flops=None if bytes_moved is None else bytes_moved.flops,
            counters=counters.get(phase),
        )
    return found


@dataclass(frozen=True)
class RankFigures:
    """One rank: peak and its phase; median times of step and phases with the others, and alone."""

    rank: int
    host: str
    peak_mib: float | None
    phase: str | None
    step_ms: float | None
    alone_ms: float | None
    phases_ms: dict[str, float]

    @classmethod
    def of(cls, found: RankResult) -> Self:
        """Return the figures of a measured or estimated rank."""
        return cls(
            rank=found.rank,
            host=found.host,
            peak_mib=_known_mib(found.peak),
            phase=found.phase,
            step_ms=_median_ms(found.step_s),
            alone_ms=_median_ms(found.alone_step_s),
            phases_ms={name: ms(statistics.median(seconds)) for name, seconds in found.phase_s.items()},
        )

    @property
    def exposed_ms(self) -> float | None:
        """Extra step time with the other ranks: communication and waiting not hidden by computation."""
        if self.step_ms is None or self.alone_ms is None:
            return None
        return self.step_ms - self.alone_ms


@dataclass(frozen=True)
class RanksFigures:
    """Each rank, the slowest, and the one with the highest peak.

    `imbalance` is the longest step alone over the mean of all ranks. `efficiency_pct` is the throughput of
    all ranks in percent of their throughput if each ran as fast as alone.
    """

    each: list[RankFigures]
    slowest: RankFigures | None
    largest: RankFigures | None
    imbalance: float | None
    efficiency_pct: float | None

    @classmethod
    def of(cls, record: Record) -> Self | None:
        """Return the figures of a record; None for a single rank."""
        each = [RankFigures.of(found) for found in record.ranks]
        if not each:
            return None
        slowest = _highest(each, lambda rank: rank.step_ms)
        alone = [rank.alone_ms for rank in each if rank.alone_ms is not None]
        mean_ms = statistics.fmean(alone) if alone else None
        unhindered_ms = statistics.harmonic_mean(alone) if alone else None  # harmonic, as throughputs add up
        step_ms = slowest.step_ms if slowest is not None else None
        return cls(
            each=each,
            slowest=slowest,
            largest=_highest(each, lambda rank: rank.peak_mib),
            imbalance=max(alone) / mean_ms if mean_ms else None,
            efficiency_pct=100 * unhindered_ms / step_ms if unhindered_ms and step_ms else None,
        )

    @property
    def exposed_pct(self) -> float | None:
        """Exposed communication of the slowest rank in percent of its step."""
        if self.slowest is None or self.slowest.exposed_ms is None or not self.slowest.step_ms:
            return None
        return 100 * self.slowest.exposed_ms / self.slowest.step_ms


def _highest(ranks: list[RankFigures], figure: Callable[[RankFigures], float | None]) -> RankFigures | None:
    known = [rank for rank in ranks if figure(rank) is not None]
    return max(known, key=lambda rank: figure(rank) or 0.0, default=None)


@dataclass(frozen=True)
class Figures:
    """Figures of one run that pages and findings use. A part that was not measured is None or empty.

    `sent_mib` is what each rank sends in the phases of a step; None for a single rank.
    """

    peak_mib: float | None
    phases: dict[str, PhaseFigures]
    ledger: LedgerFigures | None
    sent_mib: float | None
    ranks: RanksFigures | None
    estimate: EstimateFigures | None
    counters: StepCounters | None

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the figures of a record."""
        ledger = record.ledger
        sent = [row.sent for row in ledger.collectives if row.phase is not None] if ledger else []
        counters = StepCounters.of(record.counters, ledger) if record.counters else None
        return cls(
            peak_mib=_known_mib(record.memory.peak_allocated),
            phases=phase_figures(record, counters.phases if counters else {}),
            ledger=LedgerFigures.of(record, ledger) if ledger else None,
            sent_mib=mib(sum(sent)) if ledger and from_flat(record.config).world_size > 1 else None,
            ranks=RanksFigures.of(record),
            estimate=EstimateFigures.of(record, ledger) if ledger and record.is_estimate else None,
            counters=counters,
        )

"""Hardware counter figures of the whole step, of each phase and of each kernel class."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from dpprof.config import counter_metrics as ncu
from dpprof.record.counters import CounterResult, CounterRow, total
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.units import gib, mib, ms

DRAM_READ, DRAM_WRITTEN = "dram_read", "dram_written"
L2_READ, L2_WRITTEN = "l2_read", "l2_written"
L1_LOAD, L1_STORE = "l1_global_load", "l1_global_store"
# Name and unit in bytes of each traffic metric: some count bytes, others sectors of the L2 cache.
_TRAFFIC = {
    ncu.DRAM_READ: (DRAM_READ, 1),
    ncu.DRAM_WRITTEN: (DRAM_WRITTEN, 1),
    ncu.L2_READ: (L2_READ, ncu.SECTOR_BYTES),
    ncu.L2_WRITTEN: (L2_WRITTEN, ncu.SECTOR_BYTES),
    ncu.L2_ATOMIC: ("l2_atomic", ncu.SECTOR_BYTES),
    ncu.L2_REDUCTION: ("l2_reduction", ncu.SECTOR_BYTES),
    ncu.L1_LOAD: (L1_LOAD, 1),
    ncu.L1_STORE: (L1_STORE, 1),
}
_LOOKUPS = {"l1": (ncu.L1_HITS, ncu.L1_MISSES), "l2": (ncu.L2_HITS, ncu.L2_MISSES)}


@dataclass(frozen=True)
class CounterTraffic:
    """Traffic at one memory level in one direction; `gib_per_s` is None where kernels took no time."""

    mib: float
    gib_per_s: float | None


@dataclass(frozen=True)
class CounterFigures:
    """Counters of a group of kernels. Throughput is the sum of bytes over the sum of kernel times.

    `traffic` goes by level and direction (`dram_read`), `hit_pct` by cache. `dram_gib_per_s` counts reads and
    writes together. `values` maps Nsight Compute's names of all metrics to values in base units.
    `dram_to_ledger` is DRAM bytes over the bytes that operators request: below 1, caches saved the rest.
    """

    kernel_ms: float
    kernel_launches: int
    traffic: dict[str, CounterTraffic] = field(default_factory=dict)
    dram_pct_of_peak: float | None = None
    dram_gib_per_s: float | None = None
    hit_pct: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    dram_to_ledger: float | None = None

    def moved_mib(self, where: str) -> float | None:
        """Return the MiB of one level and direction, if counted."""
        return self.traffic[where].mib if where in self.traffic else None

    @property
    def dram_mib(self) -> float | None:
        """MiB read from and written to the device's memory, together."""
        read, written = self.moved_mib(DRAM_READ), self.moved_mib(DRAM_WRITTEN)
        return None if read is None or written is None else read + written

    @property
    def further(self) -> dict[str, float]:
        """Metrics that have no field of their own."""
        own = (*_TRAFFIC, ncu.DRAM_PCT)
        return {metric: value for metric, value in self.values.items() if metric not in own}

    @classmethod
    def of(cls, rows: Iterable[CounterRow], moved: Moved | None = None) -> Self:
        """Return the figures of some kernels; `moved` is the ledger's traffic of the same, if known."""
        row = total("", "", None, rows)
        values, seconds = row.values, row.seconds
        of = {where: values[metric] * unit for metric, (where, unit) in _TRAFFIC.items() if metric in values}
        dram = of[DRAM_READ] + of[DRAM_WRITTEN] if {DRAM_READ, DRAM_WRITTEN} <= of.keys() else None
        return cls(
            kernel_ms=ms(seconds),
            kernel_launches=row.launches,
            traffic={
                where: CounterTraffic(mib(num_bytes), gib(num_bytes) / seconds if seconds else None)
                for where, num_bytes in of.items()
            },
            dram_pct_of_peak=values.get(ncu.DRAM_PCT),
            dram_gib_per_s=gib(dram) / seconds if dram is not None and seconds else None,
            hit_pct={
                cache: 100 * values[hits] / lookups
                for cache, (hits, misses) in _LOOKUPS.items()
                if hits in values and misses in values and (lookups := values[hits] + values[misses])
            },
            values=values,
            dram_to_ledger=dram / moved.num_bytes if dram is not None and moved and moved.num_bytes else None,
        )


@dataclass(frozen=True)
class StepCounters:
    """Counter figures of a step. `phases` has the kernels outside the phases under None."""

    step: CounterFigures
    phases: dict[str | None, CounterFigures]
    classes: dict[str, CounterFigures]
    outside_phases_pct: float | None

    @classmethod
    def of(cls, counters: CounterResult, ledger: LedgerResult | None) -> Self:
        """Return the figures of a record's counters, compared with its ledger if it has one."""
        moved = ledger.moved(by=lambda row: row.phase) if ledger else {}
        phases = grouped(counters.rows, lambda row: row.phase)
        classes = grouped(counters.rows, lambda row: row.kernel_class)
        seconds = math.fsum(row.seconds for row in counters.rows)
        outside = math.fsum(row.seconds for row in phases.get(None, ()))
        return cls(
            step=CounterFigures.of(counters.rows, ledger.moved_in_step if ledger else None),
            phases={phase: CounterFigures.of(rows, moved.get(phase)) for phase, rows in phases.items()},
            classes={name: CounterFigures.of(rows) for name, rows in classes.items()},
            outside_phases_pct=100 * outside / seconds if seconds else None,
        )

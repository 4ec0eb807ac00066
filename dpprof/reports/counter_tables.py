"""The tables of one experiment's hardware counters, as plain data: what really moved, where, and how fast."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.config.counter_metrics import BASIC
from dpprof.figures.counters import (
    DRAM_READ,
    DRAM_WRITTEN,
    L1_LOAD,
    L1_STORE,
    L2_READ,
    L2_WRITTEN,
    CounterFigures,
    StepCounters,
)
from dpprof.record.counters import CounterResult
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.reports.tables import BETWEEN, phase_order
from dpprof.vocabulary.units import mib

STEP = "step"


@dataclass(frozen=True)
class CountedRow:
    """Kernels of one phase, one class or one name, or all of the step. What was not counted is None.

    `dram_gib_per_s` is the sum of bytes over the sum of kernel times. `ledger_mib` is what operators ask for
    there, `dram_to_ledger` the share of it that the device's memory saw; only phases and the step have them.
    `extra` holds the metrics that have no column, by Nsight Compute's names and in its base units.
    """

    name: str
    kernel_class: str
    phase: str
    launches: int
    kernel_ms: float
    dram_read_mib: float | None
    dram_written_mib: float | None
    dram_gib_per_s: float | None
    dram_pct_of_peak: float | None
    l2_read_mib: float | None
    l2_written_mib: float | None
    l1_load_mib: float | None
    l1_store_mib: float | None
    extra: dict[str, float]
    ledger_mib: float | None = None
    dram_to_ledger: float | None = None

    @property
    def dram_mib(self) -> float | None:
        """Read from the device's memory and written to it, together."""
        read, written = self.dram_read_mib, self.dram_written_mib
        return None if read is None or written is None else read + written


@dataclass(frozen=True)
class CounterTables:
    """All tables. Phases come in the order in which they run, classes and kernels most DRAM traffic first.

    `settings` tell how it was counted, `missing` why a metric that was asked for is not there.
    """

    by_phase: list[CountedRow]
    by_class: list[CountedRow]
    kernels: list[CountedRow]
    step: CountedRow
    settings: dict[str, str]
    missing: dict[str, str]

    @property
    def has_phases(self) -> bool:
        """Whether any kernel lies in a phase; in a report made elsewhere none may."""
        return any(row.name != BETWEEN for row in self.by_phase)


def compute(counters: CounterResult, ledger: LedgerResult | None) -> CounterTables:
    """The tables of hardware counters, beside the bytes that the ledger recorded, if there is one."""
    found = StepCounters.of(counters, ledger)
    moved = ledger.moved(by=lambda row: row.phase) if ledger else None
    return CounterTables(
        by_phase=[
            _row(
                phase or BETWEEN,
                found.phases[phase],
                phase=phase or BETWEEN,
                moved=None if moved is None else moved.get(phase, Moved()),
            )
            for phase in sorted(found.phases, key=phase_order)
        ],
        by_class=_most_traffic_first(
            _row(name, of_class, kernel_class=name) for name, of_class in found.classes.items()
        ),
        kernels=_most_traffic_first(
            _row(row.name, CounterFigures.of(row), row.kernel_class, row.phase or BETWEEN)
            for row in counters.rows
        ),
        step=_row(STEP, found.step, moved=ledger.moved_in_step if ledger else None),
        settings=counters.settings,
        missing=counters.missing,
    )


def _row(
    name: str, counters: CounterFigures, kernel_class: str = "", phase: str = "", moved: Moved | None = None
) -> CountedRow:
    return CountedRow(
        name=name,
        kernel_class=kernel_class,
        phase=phase,
        launches=counters.kernel_launches,
        kernel_ms=counters.kernel_ms,
        dram_read_mib=counters.moved_mib(DRAM_READ),
        dram_written_mib=counters.moved_mib(DRAM_WRITTEN),
        dram_gib_per_s=counters.dram_gib_per_s,
        dram_pct_of_peak=counters.dram_pct_of_peak,
        l2_read_mib=counters.moved_mib(L2_READ),
        l2_written_mib=counters.moved_mib(L2_WRITTEN),
        l1_load_mib=counters.moved_mib(L1_LOAD),
        l1_store_mib=counters.moved_mib(L1_STORE),
        extra={metric: value for metric, value in counters.values.items() if metric not in BASIC},
        ledger_mib=None if moved is None else mib(moved.num_bytes),
        dram_to_ledger=counters.dram_to_ledger,
    )


def _most_traffic_first(rows: Iterable[CountedRow]) -> list[CountedRow]:
    """Those whose DRAM traffic was not counted come after the others, the longest first."""
    return sorted(rows, key=lambda row: (row.dram_mib is None, -(row.dram_mib or 0), -row.kernel_ms))

"""The tables of one experiment's hardware counters, as plain data: what really moved, where, and how fast."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpprof.config.counter_metrics import BASIC
from dpprof.figures.metrics import MIB, counted
from dpprof.record.counters import CounterResult, CounterRow, total
from dpprof.record.ledger import LedgerResult
from dpprof.reports.tables import BETWEEN, phase_order

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
        return _sum(self.dram_read_mib, self.dram_written_mib)


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
    """The tables of hardware counters, beside the bytes that the ledger booked where there is one."""
    rows = counters.rows
    phases = sorted(dict.fromkeys(row.phase for row in rows), key=phase_order)
    return CounterTables(
        by_phase=[_phase(phase, rows, ledger) for phase in phases],
        by_class=_most_traffic_first(
            _row(total(name, name, None, (row for row in rows if row.kernel_class == name)))
            for name in dict.fromkeys(row.kernel_class for row in rows)
        ),
        kernels=_most_traffic_first(_row(row, row.phase or BETWEEN) for row in rows),
        step=_row(total(STEP, "", None, rows), ledger_bytes=_ledger_bytes(ledger, lambda phase: True)),
        settings=counters.settings,
        missing=counters.missing,
    )


def _phase(phase: str | None, rows: list[CounterRow], ledger: LedgerResult | None) -> CountedRow:
    within = [row for row in rows if row.phase == phase]
    return _row(
        total(phase or BETWEEN, "", phase, within),
        phase or BETWEEN,
        _ledger_bytes(ledger, lambda booked: booked == phase),
    )


def _ledger_bytes(ledger: LedgerResult | None, wanted: Callable[[str | None], bool]) -> int | None:
    if ledger is None:
        return None
    return sum(row.read + row.written for row in ledger.traffic if wanted(row.phase))


def _row(row: CounterRow, phase: str = "", ledger_bytes: int | None = None) -> CountedRow:
    figures = counted(row)
    read, written = figures.get("dram_read_mib"), figures.get("dram_written_mib")
    dram = _sum(read, written)
    ledger_mib = None if ledger_bytes is None else ledger_bytes / MIB
    return CountedRow(
        name=row.name,
        kernel_class=row.kernel_class,
        phase=phase,
        launches=row.launches,
        kernel_ms=figures["kernel_ms"],
        dram_read_mib=read,
        dram_written_mib=written,
        dram_gib_per_s=dram / 1024 / row.seconds if dram is not None and row.seconds else None,
        dram_pct_of_peak=figures.get("dram_pct_of_peak"),
        l2_read_mib=figures.get("l2_read_mib"),
        l2_written_mib=figures.get("l2_written_mib"),
        l1_load_mib=figures.get("l1_global_load_mib"),
        l1_store_mib=figures.get("l1_global_store_mib"),
        extra={name: value for name, value in row.values.items() if name not in BASIC},
        ledger_mib=ledger_mib,
        dram_to_ledger=dram / ledger_mib if dram is not None and ledger_mib else None,
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _most_traffic_first(rows: Iterable[CountedRow]) -> list[CountedRow]:
    """Those whose DRAM traffic was not counted come after the others, the longest first."""
    return sorted(rows, key=lambda row: (row.dram_mib is None, -(row.dram_mib or 0), -row.kernel_ms))

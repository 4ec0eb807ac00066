"""Tables of one experiment's hardware counters, as plain data: what really moved, where, and how fast."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.findings.tables import BETWEEN, phase_order
from dpprof.record.counters import CounterResult
from dpprof.record.figures.counters import CounterFigures, StepCounters
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.vocabulary.units import mib

STEP = "step"


@dataclass(frozen=True)
class CountedRow:
    """Kernels of one phase, class or name, or of the whole step.

    `ledger_mib` is what operators ask for, None where that does not compare.
    """

    name: str
    figures: CounterFigures
    kernel_class: str = ""
    phase: str = ""
    ledger_mib: float | None = None


@dataclass(frozen=True)
class CounterTables:
    """All tables; classes and kernels by DRAM traffic."""

    by_phase: list[CountedRow]
    by_class: list[CountedRow]
    kernels: list[CountedRow]
    step: CountedRow
    counters: CounterResult

    @property
    def has_phases(self) -> bool:
        """True if any kernel lies in a phase; reports made elsewhere may have none."""
        return any(row.name != BETWEEN for row in self.by_phase)


def compute(counters: CounterResult, ledger: LedgerResult | None) -> CounterTables:
    """Return the tables of hardware counters, beside the bytes that the ledger recorded, if there is one."""
    found = StepCounters.of(counters, ledger)
    moved = ledger.moved(by=lambda row: row.phase) if ledger else None
    return CounterTables(
        by_phase=[
            CountedRow(
                phase or BETWEEN,
                found.phases[phase],
                phase=phase or BETWEEN,
                ledger_mib=None if moved is None else mib(moved.get(phase, Moved()).num_bytes),
            )
            for phase in sorted(found.phases, key=phase_order)
        ],
        by_class=_most_traffic_first(
            CountedRow(name, of_class, name) for name, of_class in found.classes.items()
        ),
        kernels=_most_traffic_first(
            CountedRow(row.name, CounterFigures.of([row]), row.kernel_class, row.phase or BETWEEN)
            for row in counters.rows
        ),
        step=CountedRow(STEP, found.step, ledger_mib=mib(ledger.moved_in_step.num_bytes) if ledger else None),
        counters=counters,
    )


def _most_traffic_first(rows: Iterable[CountedRow]) -> list[CountedRow]:
    """Sort by DRAM traffic; rows without it come last, the longest first."""
    return sorted(
        rows,
        key=lambda row: (row.figures.dram_mib is None, -(row.figures.dram_mib or 0), -row.figures.kernel_ms),
    )

"""What the roofline is made of: the work, the bytes and the time of each phase of a training step.

The roofline: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.figures import names
from dpprof.figures.phases import PhaseFigures
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.tables import phase_order
from dpprof.vocabulary.units import MIB, MS_PER_S

STEP = "step"
COUNTERS, LEDGER = "counters", "ledger"


@dataclass(frozen=True)
class Point:
    """One phase, or the whole step. `source` says where bytes and seconds come from, always both from one.

    COUNTERS: DRAM traffic and kernel time, from hardware counters. LEDGER: bytes that operators ask for, and
    wall time of the clean pass. `flops` come from the ledger in both cases: those of matrix products,
    convolutions and attention; 0 where a phase has none of these, None without a ledger.
    """

    phase: str
    source: str
    num_bytes: float
    seconds: float | None
    flops: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None where there are no FLOPs to speak of."""
        return self.flops / self.num_bytes if self.flops and self.num_bytes else None

    @property
    def flop_per_s(self) -> float | None:
        """FLOPs reached per second; None where there are none."""
        return self.flops / self.seconds if self.flops and self.seconds else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes read and written per second."""
        return self.num_bytes / self.seconds if self.seconds else None


@dataclass(frozen=True)
class _Work:
    """What is known of a phase or of the step: MiB and ms, by source, and FLOPs."""

    flops: float | None
    ledger_mib: float | None
    wall_ms: float | None
    dram_mib: float | None
    kernel_ms: float | None


def points(cell: Cell) -> list[Point]:
    """The phases in the order in which they run, then the step."""
    known = {name: _of_phase(phase) for name, phase in cell.phases.items()}
    works = [(name, known[name]) for name in sorted(known, key=phase_order)]
    # Under Poisson sampling the ledger's bytes are of another batch than the time.
    varies = "step/mean_batch" in cell.figures
    return list(_points([*works, (STEP, _of_step(cell.figures))], varies))


def _of_phase(phase: PhaseFigures) -> _Work:
    counters = phase.counters
    return _Work(
        flops=phase.flops,
        ledger_mib=phase.moved_mib,
        wall_ms=phase.ms,
        dram_mib=counters.dram_mib if counters else None,
        kernel_ms=counters.kernel_ms if counters else None,
    )


def _of_step(figures: dict[str, float]) -> _Work:
    read, written = figures.get("counters/dram_read_mib"), figures.get("counters/dram_written_mib")
    return _Work(
        flops=figures.get("flops/total"),
        ledger_mib=figures.get(names.MOVED),
        wall_ms=figures.get(names.STEP),
        dram_mib=None if read is None or written is None else read + written,
        kernel_ms=figures.get("counters/kernel_ms"),
    )


def _points(works: list[tuple[str, _Work]], varies: bool) -> Iterator[Point]:
    for name, work in works:
        if work.dram_mib is not None and work.kernel_ms is not None:
            yield Point(name, COUNTERS, work.dram_mib * MIB, work.kernel_ms / MS_PER_S, work.flops)
        elif work.ledger_mib is not None:
            seconds = None if work.wall_ms is None or varies else work.wall_ms / MS_PER_S
            yield Point(name, LEDGER, work.ledger_mib * MIB, seconds, work.flops)

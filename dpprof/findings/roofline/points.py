"""Points and ceilings of the roofline (S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009)."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.tables import phase_order
from dpprof.record.figures import names
from dpprof.vocabulary.units import GIB, MIB, MS_PER_S

STEP = "step"
COUNTERS, LEDGER = "counters", "ledger"


@dataclass(frozen=True)
class Point:
    """One phase, or the whole step. `source` says where both bytes and seconds come from.

    COUNTERS: DRAM traffic and kernel time. LEDGER: bytes that operators ask for, and wall time of the clean
    pass. `flops` are the ledger's: matrix products, convolutions and attention (0: none, None: no ledger).
    """

    phase: str
    source: str
    num_bytes: float
    seconds: float | None
    flops: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None without FLOPs."""
        return self.flops / self.num_bytes if self.flops and self.num_bytes else None

    @property
    def flop_per_s(self) -> float | None:
        """FLOPs per second; None without FLOPs."""
        return self.flops / self.seconds if self.flops and self.seconds else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes read and written per second."""
        return self.num_bytes / self.seconds if self.seconds else None


def points(cell: Cell) -> list[Point]:
    """Return the phases in the order in which they run, then the step."""
    figures = cell.figures
    # Under Poisson sampling the ledger sees another batch than the clock.
    is_timed = names.MEAN_BATCH not in figures
    found = []
    for name in sorted(cell.phases, key=phase_order):
        phase = cell.phases[name]
        of_phase = phase.counters
        dram = (of_phase.dram_mib, of_phase.kernel_ms) if of_phase else (None, None)
        found.append(_point(name, phase.flops, dram, (phase.moved_mib, phase.ms if is_timed else None)))
    read, written = figures.get(names.DRAM_READ), figures.get(names.DRAM_WRITTEN)
    moved = None if read is None or written is None else read + written
    counted = moved, figures.get(names.KERNEL_MS)
    asked = figures.get(names.MOVED), figures.get(names.STEP) if is_timed else None
    found.append(_point(STEP, figures.get(names.FLOPS), counted, asked))
    return [point for point in found if point is not None]


def _point(
    name: str,
    flops: float | None,
    dram: tuple[float | None, float | None],
    asked: tuple[float | None, float | None],
) -> Point | None:
    """Return a point by MiB and ms of hardware counters, or else of the ledger; None without either."""
    mib, ms = dram
    if mib is not None and ms is not None:
        return Point(name, COUNTERS, mib * MIB, ms / MS_PER_S, flops)
    mib, ms = asked
    if mib is None:
        return None
    return Point(name, LEDGER, mib * MIB, None if ms is None else ms / MS_PER_S, flops)


_PER_S = {names.COPY: GIB, names.MATMUL: 10**12}


@dataclass(frozen=True)
class Ceiling:
    """Bytes or FLOPs per second: the user's figure, or the highest of `num_runs` runs that measured it."""

    per_s: float
    lowest_per_s: float
    num_runs: int

    @property
    def is_given(self) -> bool:
        """True if the user gave it; otherwise it was measured."""
        return not self.num_runs


@dataclass(frozen=True)
class Given:
    """Ceilings that the user gives, for all devices and precisions; None to use measured ones."""

    copy_bytes_per_s: float | None = None
    matmul_flop_per_s: float | None = None


@dataclass(frozen=True)
class Roof:
    """Ceilings of one device in one precision, as far as they are known."""

    device: str
    precision: str
    copy: Ceiling | None
    matmul: Ceiling | None

    @property
    def ridge(self) -> float | None:
        """FLOP per byte at which both ceilings meet: below it the copy binds, above it the arithmetic."""
        return self.matmul.per_s / self.copy.per_s if self.copy and self.matmul else None

    def binds(self, intensity: float | None) -> str | None:
        """Return the ceiling that binds at some FLOP per byte: `copy` or `matmul`; None if unknown."""
        if self.ridge is None or intensity is None:
            return None
        return "copy" if intensity < self.ridge else "matmul"


def roof_key(cell: Cell) -> tuple[str, str]:
    """Return device and precision: cells that share both share a roof."""
    device = cell.environment.get("gpu" if cell.config.device == "cuda" else "cpu")
    return device or cell.config.device, cell.config.precision


def roofs(cells: Iterable[Cell], given: Given) -> dict[tuple[str, str], Roof]:
    """Return the roof of each device and precision; the user's ceilings replace measured ones."""
    cells = list(cells)
    found = {}
    for device, precision in dict.fromkeys(map(roof_key, cells)):
        of_device = [cell for cell in cells if roof_key(cell)[0] == device]
        of_both = [cell for cell in of_device if roof_key(cell)[1] == precision]
        # Copies are measured in one precision whatever the experiment's: their ceiling is the device's.
        found[device, precision] = Roof(
            device,
            precision,
            _ceiling(of_device, names.COPY, given.copy_bytes_per_s),
            _ceiling(of_both, names.MATMUL, given.matmul_flop_per_s),
        )
    return found


def _ceiling(cells: list[Cell], metric: str, given: float | None) -> Ceiling | None:
    if given is not None:
        return Ceiling(given, given, 0)
    measured = [
        run.figures[metric] * _PER_S[metric]
        for cell in cells
        for run in cell.representative
        if metric in run.figures
    ]
    return Ceiling(max(measured), min(measured), len(measured)) if measured else None

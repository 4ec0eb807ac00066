"""The ceilings of each device and precision: what its memory and its arithmetic reach at best."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.reports.comparison.cell import Cell
from dpprof.vocabulary.units import GIB

COPY, MATMUL = "ceilings/copy_gib_per_s", "ceilings/matmul_tflop_per_s"
_PER_S = {COPY: GIB, MATMUL: 10**12}


@dataclass(frozen=True)
class Ceiling:
    """Bytes or FLOPs per second: the user's figure, or the highest of `num_runs` runs that measured it."""

    per_s: float
    lowest_per_s: float
    num_runs: int

    @property
    def is_given(self) -> bool:
        """Whether the user said so; else it was measured."""
        return not self.num_runs


@dataclass(frozen=True)
class Given:
    """Ceilings that the user gives, for all devices and precisions; None where measured ones count."""

    copy_bytes_per_s: float | None = None
    matmul_flop_per_s: float | None = None


@dataclass(frozen=True)
class Roof:
    """The ceilings over the points of one device in one precision, as far as they are known."""

    device: str
    precision: str
    copy: Ceiling | None
    matmul: Ceiling | None

    @property
    def ridge(self) -> float | None:
        """The FLOP per byte where both ceilings meet: below it the copy binds, above it the arithmetic."""
        return self.matmul.per_s / self.copy.per_s if self.copy and self.matmul else None

    def binds(self, intensity: float | None) -> str | None:
        """The ceiling that binds at some FLOP per byte: `copy` or `matmul`."""
        if self.ridge is None or intensity is None:
            return None
        return "copy" if intensity < self.ridge else "matmul"


def roof_key(cell: Cell) -> tuple[str, str]:
    """Device and precision: the cells that share these share a roof."""
    device = cell.environment.get("gpu" if cell.config.device == "cuda" else "cpu")
    return device or cell.config.device, cell.config.precision


def roofs(cells: Iterable[Cell], given: Given) -> dict[tuple[str, str], Roof]:
    """The roof of each device and precision. What the user gives counts before what was measured.

    Copies are measured in one precision whatever the experiment's: their ceiling is the device's.
    """
    cells = list(cells)
    found = {}
    for device, precision in dict.fromkeys(map(roof_key, cells)):
        of_device = [cell for cell in cells if roof_key(cell)[0] == device]
        of_both = [cell for cell in of_device if roof_key(cell)[1] == precision]
        found[device, precision] = Roof(
            device,
            precision,
            _ceiling(of_device, COPY, given.copy_bytes_per_s),
            _ceiling(of_both, MATMUL, given.matmul_flop_per_s),
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

"""Estimates beside measurements of the same experiments: how far off they are, and how close to the floor."""

from dataclasses import dataclass

from dpprof.figures.capacity import device_of
from dpprof.figures.names import FLOOR, PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison


@dataclass(frozen=True)
class Pair:
    """One experiment estimated and measured: MiB and ms; None where a side does not tell.

    `ledger_mib` is the peak under the ledger, in which the estimate's has to agree, `allocator_mib` the one
    that torch's allocator reports. `floor_ms` is there where the device measured is the one estimated for.
    """

    name: str
    estimated_mib: float
    ledger_mib: float | None
    estimated_allocator_mib: float | None
    allocator_mib: float | None
    floor_ms: float | None
    step_ms: float | None

    @property
    def ledger_off_pct(self) -> float | None:
        """How much higher the estimated peak of the tensors is, in percent."""
        return _off_pct(self.estimated_mib, self.ledger_mib)

    @property
    def allocator_off_pct(self) -> float | None:
        """How much higher the estimated peak of the allocator is, in percent."""
        return _off_pct(self.estimated_allocator_mib, self.allocator_mib)

    @property
    def to_floor(self) -> float | None:
        """How many times the floor the measured step takes."""
        return self.step_ms / self.floor_ms if self.step_ms and self.floor_ms else None


def pairs(comparison: Comparison) -> list[Pair]:
    """Every estimate with its measurement, in the order of the cells."""
    measured = {cell.experiment: cell for cell in comparison.cells if not cell.is_estimate and cell.finished}
    found = [(cell, measured.get(cell.experiment)) for cell in comparison.cells if cell.is_estimate]
    return [_pair(estimate, twin) for estimate, twin in found if estimate.finished and twin is not None]


def without_paired(comparison: Comparison) -> Comparison:
    """The comparison without estimates of experiments that were measured too: the measurement counts."""
    measured = {cell.experiment for cell in comparison.cells if not cell.is_estimate and cell.finished}
    kept = [c for c in comparison.cells if not c.is_estimate or c.experiment not in measured]
    return Comparison(comparison.name, kept)


def _pair(estimate: Cell, twin: Cell) -> Pair:
    device = device_of(estimate.config)
    is_same_device = device is not None and device.is_named(twin.environment.get("gpu", ""))
    return Pair(
        name=twin.runs[0].name,
        estimated_mib=estimate.figures["ledger/peak_mib"],
        ledger_mib=twin.figures.get("ledger/peak_mib"),
        estimated_allocator_mib=estimate.figures.get(PEAK),
        allocator_mib=twin.figures.get(PEAK),
        floor_ms=estimate.figures.get(FLOOR) if is_same_device else None,
        step_ms=twin.figures.get(STEP),
    )


def _off_pct(estimated: float | None, measured: float | None) -> float | None:
    return 100 * (estimated / measured - 1) if estimated is not None and measured else None

"""How memory and time grow with the batch and with the sequence: straight lines through measured cells."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison

_FEWEST_TIMES = 3
# A line through the origin is fitted with a remainder of this order, in parts of the figure.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Line:
    """A least-squares line through one figure of one trainer's cells.

    `along` is the setting that grows, `x` its values, `y` the figure at each. `fixed` is the line at 0 and
    `slope` its rise: per sample along `batch_size`; along `seq_len` per token of the step, batch x sequence.
    `peak_phases` are those in which the peaks lie, where the figure is the peak and the ledger tells: with
    more than one the figure follows no single line. `off_pct` is how far the line misses the worst of three
    or more cells; two cells check nothing. `phase` is there where the figure is the peak in one phase alone.
    """

    source: str
    model: str
    trainer: str
    place: str
    metric: str
    along: str
    x: list[int]
    y: list[float]
    fixed: float
    slope: float
    peak_phases: list[str]
    off_pct: float | None
    phase: str | None = None


def lines(comparison: Comparison, metric: str, along: str) -> list[Line]:
    """The lines of all trainers, wherever two or more cells differ in `along` alone; of step times three or
    more, as they are not exact.

    None through disturbed step times, and none of Poisson-sampled batches, whose sizes are not those that
    `along` tells.
    """
    found = _comparable(comparison, lambda cell: cell.figures.get(metric), along, is_time=metric == STEP)
    return [_line(comparison, cells, metric, along) for cells in found]


def phase_lines(comparison: Comparison, phase: str) -> list[Line]:
    """The lines of all trainers through one phase's peak along the batch."""
    found = _comparable(comparison, lambda cell: cell.peak_by_phase.get(phase), "batch_size", is_time=False)
    return [_line(comparison, cells, PEAK, "batch_size", phase) for cells in found]


def growth(comparison: Comparison) -> Iterator[Line]:
    """Peak memory and step time, along the batch and along the sequence."""
    for along in ("batch_size", "seq_len"):
        for metric in (PEAK, STEP):
            yield from lines(comparison, metric, along)


def _comparable(
    comparison: Comparison, value: Callable[[Cell], float | None], along: str, *, is_time: bool
) -> list[list[Cell]]:
    """Finished cells with a value that differ in `along` alone, as many together as make a line."""
    groups: dict[object, list[Cell]] = {}
    for cell in comparison.cells:
        if is_time and cell.is_disturbed:
            continue
        if cell.finished and value(cell) is not None and not cell.settings["poisson_sampling"]:
            rest = tuple((name, setting) for name, setting in cell.settings.items() if name != along)
            groups.setdefault((cell.source, rest), []).append(cell)
    fewest = _FEWEST_TIMES if is_time else 2
    return [cells for cells in groups.values() if len(cells) >= fewest]


def _line(
    comparison: Comparison, cells: list[Cell], metric: str, along: str, phase: str | None = None
) -> Line:
    cells = sorted(cells, key=lambda cell: int(cell.settings[along]))
    first = cells[0]
    x = [int(cell.settings[along]) for cell in cells]
    y = [cell.figures[metric] if phase is None else cell.peak_by_phase[phase] for cell in cells]
    # A step's time is that of all its physical batches, its peak that of one.
    batches = first.config.accumulation_steps if metric == STEP else 1
    units = np.array(x, dtype=float) * batches * (1 if along == "batch_size" else first.config.batch_size)
    slope, fixed = (float(value) for value in np.polyfit(units, y, 1))
    if abs(fixed) < _ROUNDING * max(y):
        fixed = 0.0
    off = [abs(fixed + slope * unit - value) / value for unit, value in zip(units, y, strict=True)]
    return Line(
        source=first.source,
        model=comparison.model(first).label,
        trainer=first.trainer,
        place=comparison.place_name(first, without=along),
        metric=metric,
        along=along,
        x=x,
        y=y,
        fixed=fixed,
        slope=slope,
        peak_phases=_peak_phases(cells) if metric == PEAK and phase is None else [],
        off_pct=100 * max(off) if len(x) > 2 else None,
        phase=phase,
    )


def _peak_phases(cells: list[Cell]) -> list[str]:
    phases = (cell.representative[0].peak_phase for cell in cells)
    return list(dict.fromkeys(phase for phase in phases if phase is not None))

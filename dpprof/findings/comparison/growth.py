"""Growth of memory and time with the batch and the sequence: straight lines through measured cells."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.record.figures.names import PEAK, STEP
from dpprof.vocabulary.grouping import grouped

_FEWEST_TIMES = 3
# Relative rounding error at the origin of a fitted line.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Line:
    """A least-squares line through one figure of one trainer's cells.

    `along` is the setting that grows, `x` its values, `y` the figure at each. `fixed` is the line at 0,
    `slope` its rise: per sample along `batch_size`, per token of the step (batch x sequence) along `seq_len`.
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


def lines(comparison: Comparison, metric: str, along: str) -> list[Line]:
    """Return the lines of all trainers with two or more cells (three for times) that differ in `along` alone.

    Disturbed step times and Poisson-sampled batches, whose sizes `along` does not tell, are left out.
    """
    is_time = metric == STEP
    told = [
        cell
        for cell in comparison.cells
        if cell.finished
        and metric in cell.figures
        and not cell.settings["poisson_sampling"]
        and not (is_time and cell.is_disturbed)
    ]
    groups = grouped(told, lambda cell: _all_but(cell, along))
    fewest = _FEWEST_TIMES if is_time else 2
    return [_line(comparison, g, metric, along) for g in groups.values() if len(g) >= fewest]


def _all_but(cell: Cell, along: str) -> tuple[object, ...]:
    settings = (setting for setting in cell.settings.items() if setting[0] != along)
    return (cell.source, cell.weights_dtype, *settings)


def growth(comparison: Comparison) -> Iterator[Line]:
    """Yield the lines of peak memory and step time, along the batch and along the sequence."""
    for along in ("batch_size", "seq_len"):
        for metric in (PEAK, STEP):
            yield from lines(comparison, metric, along)


def _line(comparison: Comparison, cells: list[Cell], metric: str, along: str) -> Line:
    cells = sorted(cells, key=lambda cell: int(cell.settings[along]))
    first = cells[0]
    x = [int(cell.settings[along]) for cell in cells]
    y = [cell.figures[metric] for cell in cells]
    # A step's time is that of all its physical batches, its peak that of one.
    batches = first.config.accumulation_steps if metric == STEP else 1
    units = np.array(x, dtype=float) * batches * (1 if along == "batch_size" else first.config.batch_size)
    slope, fixed = (float(value) for value in np.polyfit(units, y, 1))
    if abs(fixed) < _ROUNDING * max(y):
        fixed = 0.0
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
    )

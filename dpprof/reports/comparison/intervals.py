"""Whether a difference between two step times is larger than their spread.

Step times are compared on a logarithmic scale: their noise is a factor, not a sum. With two or more runs of a
cell the spread between the runs' medians counts, which holds what differs from process to process. With one
run there is only the spread between its steps, and nothing can tell what another process would have shown.
"""

import math
import statistics
from dataclasses import dataclass

from dpprof.reports.comparison.cells import Cell

CONFIDENCE = 0.95
# Fewer steps than this say nothing of their spread.
FEWEST_STEPS = 5
# The standard error of a median over that of a mean, for normal noise: sqrt(pi / 2).
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)
# A normal distribution's quartiles lie 1.349 standard deviations apart.
_IQR_OVER_SD = 1.349


@dataclass(frozen=True)
class Ratio:
    """How many times one cell's median step time is the other's, with its 95 % confidence interval.

    `between_runs` says whether the interval counts what differs from process to process.
    """

    value: float
    low: float
    high: float
    between_runs: bool

    @property
    def is_clear(self) -> bool:
        """Whether the difference is larger than the spread."""
        return not self.low <= 1 <= self.high


@dataclass(frozen=True)
class _Estimate:
    """The logarithm of a median step time, its standard error, and the degrees of freedom of that."""

    log_median: float
    error: float
    freedom: int


def step_ratio(cell: Cell, other: Cell) -> Ratio | None:
    """The ratio of two cells' step times; None where a cell has too few steps to tell their spread.

    Welch's t interval on the logarithms, with the degrees of freedom of Welch and Satterthwaite
    (Welch, Biometrika 34, 1947).
    """
    found, reference = _estimate(cell), _estimate(other)
    if found is None or reference is None:
        return None
    from scipy.special import stdtrit

    squares = [(e.error**2, e.freedom) for e in (found, reference)]
    error = math.sqrt(sum(square for square, _ in squares))
    weight = sum(square**2 / freedom for square, freedom in squares)
    freedom = error**4 / weight if weight else math.inf
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error if error else 0.0
    difference = found.log_median - reference.log_median
    between_runs = min(len(cell.finished), len(other.finished)) > 1
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half), between_runs)


def _estimate(cell: Cell) -> _Estimate | None:
    runs = [[math.log(s) for s in run.step_s] for run in cell.finished if run.step_s]
    medians = [statistics.median(steps) for steps in runs]
    if len(runs) > 1:
        error = statistics.stdev(medians) / math.sqrt(len(runs))
        return _Estimate(statistics.median(medians), error, len(runs) - 1)
    if not runs or len(runs[0]) < FEWEST_STEPS:
        return None
    steps = runs[0]
    cuts = statistics.quantiles(steps, n=4, method="inclusive")
    error = _MEDIAN_OVER_MEAN * (cuts[2] - cuts[0]) / _IQR_OVER_SD / math.sqrt(len(steps))
    return _Estimate(medians[0], error, len(steps) - 1)

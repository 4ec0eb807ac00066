"""Confidence intervals for ratios of step times.

Step times are compared on a logarithmic scale: their noise is a factor, not a sum. With two or more runs of a
cell, the spread between the runs' medians counts, which includes differences between processes. With one run
only the spread between its steps is known. Neither includes what a busy machine does to a run: disturbed runs
(`disturbances`) are left out.
"""

import math
import statistics
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell

CONFIDENCE = 0.95
# Fewer steps than this do not show their spread.
FEWEST_STEPS = 5
# Standard error of a median over that of a mean, for normal noise: sqrt(pi / 2).
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)
# A normal distribution's quartiles lie 1.349 standard deviations apart.
_IQR_OVER_SD = 1.349


@dataclass(frozen=True)
class Ratio:
    """Ratio of two cells' medians, with its confidence interval.

    `between_runs` says that the interval includes differences between processes.
    """

    value: float
    low: float
    high: float
    between_runs: bool

    @property
    def is_clear(self) -> bool:
        """True if the difference is larger than the spread."""
        return not self.low <= 1 <= self.high


def step_ratio(cell: Cell, other: Cell, confidence: float = CONFIDENCE) -> Ratio | None:
    """Return the ratio of two cells' step times, without disturbed runs.

    None if all runs of a cell were disturbed, or if it has too few steps to show their spread.
    """
    return _ratio([run.step_s for run in cell.calm], [run.step_s for run in other.calm], confidence)


def pace_ratio(cell: Cell, other: Cell, confidence: float = CONFIDENCE) -> Ratio | None:
    """Return the ratio of two cells' step times, each relative to the fixed computation, if measured."""
    return _ratio([run.pace for run in cell.finished], [run.pace for run in other.finished], confidence)


def _ratio(found: list[list[float]], reference: list[list[float]], confidence: float) -> Ratio | None:
    """Compute Welch's t interval on logarithms, Welch-Satterthwaite freedom (Welch, Biometrika 34, 1947)."""
    one, other = _estimate(found), _estimate(reference)
    if one is None or other is None:
        return None
    from scipy.special import stdtrit

    squares = [(error**2, freedom) for _, error, freedom in (one, other)]
    error = math.sqrt(sum(square for square, _ in squares))
    weight = sum(square**2 / freedom for square, freedom in squares)
    freedom = error**4 / weight if weight else math.inf
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error if error else 0.0
    difference = one[0] - other[0]
    between_runs = min(len(found), len(reference)) > 1
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half), between_runs)


def _estimate(runs: list[list[float]]) -> tuple[float, float, int] | None:
    """Return the logarithm of a median, its standard error, and the degrees of freedom of that."""
    logs = [[math.log(value) for value in run] for run in runs if run]
    medians = [statistics.median(values) for values in logs]
    if len(logs) > 1:
        error = statistics.stdev(medians) / math.sqrt(len(logs))
        return statistics.median(medians), error, len(logs) - 1
    if not logs or len(logs[0]) < FEWEST_STEPS:
        return None
    values = logs[0]
    cuts = statistics.quantiles(values, n=4, method="inclusive")
    error = _MEDIAN_OVER_MEAN * (cuts[2] - cuts[0]) / _IQR_OVER_SD / math.sqrt(len(values))
    return medians[0], error, len(values) - 1

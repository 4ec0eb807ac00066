"""Hardware counters of one training step as plain data: by phase, kernel class and kernel."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class CounterRow:
    """One kernel in one phase (None: outside the phases), summed over its launches.

    `values` maps Nsight Compute's metric names to values in base units (bytes, sectors, percent). A metric
    missing for one of the launches is left out.
    """

    name: str
    kernel_class: str
    phase: str | None
    launches: int
    seconds: float
    values: dict[str, float]


@dataclass
class CounterResult:
    """All kernels of the step.

    `settings` records how they were counted. `missing` maps metrics that were requested but not available to
    the reason.
    """

    rows: list[CounterRow]
    settings: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def total(name: str, kernel_class: str, phase: str | None, rows: Iterable[CounterRow]) -> CounterRow:
    """Combine several rows into one, with the metrics that all have and that can be combined.

    Nsight Compute's roll-ups are over the units of a chip within one launch, so `.sum` and `.avg` add up over
    launches. Percentages of a peak and rates are averaged over time. `.max` and hit rates cannot be combined
    over launches and are left out.
    """
    rows = list(rows)
    seconds = math.fsum(row.seconds for row in rows)
    shared = [metric for metric in (rows[0].values if rows else ()) if all(metric in r.values for r in rows)]
    combined = {metric: _combined(metric, rows, seconds) for metric in shared}
    values = {metric: value for metric, value in combined.items() if value is not None}
    return CounterRow(name, kernel_class, phase, sum(row.launches for row in rows), seconds, values)


def _combined(metric: str, rows: list[CounterRow], seconds: float) -> float | None:
    """Return the value over all rows; None if theirs do not tell it."""
    if len(rows) == 1:
        return rows[0].values[metric]
    if metric.endswith((".sum", ".avg")):
        return math.fsum(row.values[metric] for row in rows)
    if seconds > 0 and (".pct_of_peak_" in metric or metric.endswith(".per_second")):
        return math.fsum(row.values[metric] * row.seconds for row in rows) / seconds
    return None

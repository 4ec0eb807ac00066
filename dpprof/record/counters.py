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
    names = dict.fromkeys(metric for row in rows for metric in row.values)
    known = [
        metric
        for metric in names
        if all(metric in row.values for row in rows) and (len(rows) == 1 or _can_be_combined(metric, seconds))
    ]
    return CounterRow(
        name,
        kernel_class,
        phase,
        sum(row.launches for row in rows),
        seconds,
        {metric: _combine(metric, rows, seconds) for metric in known},
    )


def _is_additive(metric: str) -> bool:
    return metric.endswith((".sum", ".avg"))


def _can_be_combined(metric: str, seconds: float) -> bool:
    is_over_time = ".pct_of_peak_" in metric or metric.endswith(".per_second")
    return _is_additive(metric) or (is_over_time and seconds > 0)


def _combine(metric: str, rows: list[CounterRow], seconds: float) -> float:
    if len(rows) == 1:
        return rows[0].values[metric]
    if _is_additive(metric):
        return math.fsum(row.values[metric] for row in rows)
    return math.fsum(row.values[metric] * row.seconds for row in rows) / seconds

"""What hardware counters found in one training step, as plain data: by phase, kernel class and kernel."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

# The metric that every share and every rate is taken over: seconds here, nanoseconds in Nsight Compute.
DURATION = "gpu__time_duration.sum"


@dataclass
class CounterRow:
    """One kernel in one phase (None: outside the phases), totalled over its launches.

    `values` go by Nsight Compute's metric names, in base units (bytes, sectors, percent). A metric that is
    missing for one of the launches has no value.
    """

    name: str
    kernel_class: str
    phase: str | None
    launches: int
    seconds: float
    values: dict[str, float]


@dataclass
class CounterResult:
    """Every kernel of the step. `settings` tell how it was counted; `missing` are metrics asked for in vain,
    with the reason."""

    rows: list[CounterRow]
    settings: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made."""
        return cls(**data | {"rows": [CounterRow(**row) for row in data["rows"]]})


def total(name: str, kernel_class: str, phase: str | None, rows: Iterable[CounterRow]) -> CounterRow:
    """Several rows as one. Sums are added, `.max` and `.min` compared, anything else (a percentage, a rate)
    averaged over time. What one row does not have, the total has not."""
    rows = list(rows)
    seconds = math.fsum(row.seconds for row in rows)
    names = dict.fromkeys(metric for row in rows for metric in row.values)
    known = [metric for metric in names if all(metric in row.values for row in rows)]
    return CounterRow(
        name,
        kernel_class,
        phase,
        sum(row.launches for row in rows),
        seconds,
        {metric: _combine(metric, rows, seconds) for metric in known},
    )


def _combine(metric: str, rows: list[CounterRow], seconds: float) -> float:
    values = [row.values[metric] for row in rows]
    if metric.endswith(".sum"):
        return math.fsum(values)
    if metric.endswith(".max"):
        return max(values)
    if metric.endswith(".min"):
        return min(values)
    if not seconds:
        return math.fsum(values) / len(values)
    return math.fsum(row.values[metric] * row.seconds for row in rows) / seconds

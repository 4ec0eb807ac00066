"""Kernel launches of one step, totalled by kernel and phase."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache

from dpprof.config.counter_metrics import DURATION
from dpprof.ncu.report import Launch
from dpprof.record.counters import CounterResult, CounterRow, total
from dpprof.vocabulary.operator_classes import kernel_class
from dpprof.vocabulary.phases import PHASE_LABEL


def by_kernel(launches: Iterable[Launch], metrics: Iterable[str]) -> CounterResult:
    """Rows of kernels with the metrics asked for, the longest first.

    A metric that some launches lack is left out of their rows, and listed as missing with a count.
    """
    wanted = [metric for metric in metrics if metric != DURATION]
    groups: dict[tuple[str, str | None], list[CounterRow]] = defaultdict(list)
    lacking: dict[str, int] = defaultdict(int)
    num_launches = 0
    for launch in launches:
        num_launches += 1
        phase = phase_of(launch.ranges)
        name = short_name(launch.kernel)
        values = {metric: launch.values[metric] for metric in wanted if metric in launch.values}
        for metric in wanted:
            lacking[metric] += metric not in launch.values
        seconds = launch.values[DURATION]
        groups[name, phase].append(CounterRow(name, kernel_class(name, phase), phase, 1, seconds, values))
    rows = [total(name, rows[0].kernel_class, phase, rows) for (name, phase), rows in groups.items()]
    missing = {
        metric: f"missing for {count:,} of {num_launches:,} kernel launches"
        if count < num_launches
        else "the report has none of it"
        for metric, count in lacking.items()
        if count
    }
    return CounterResult(sorted(rows, key=lambda row: -row.seconds), missing=missing)


def phase_of(ranges: Iterable[str]) -> str | None:
    """The phase that a launch belongs to: the innermost of the ranges around it that are phases."""
    phases = [name.removeprefix(PHASE_LABEL) for name in ranges if name.startswith(PHASE_LABEL)]
    return phases[-1] if phases else None


@cache
def short_name(kernel: str) -> str:
    """A demangled name without its return type and parameters, which its template arguments imply."""
    name = kernel.removeprefix("void ")
    if not name.endswith(")"):
        return name
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        depth += (name[index] == ")") - (name[index] == "(")
        if depth == 0:
            return name[:index] or name
    return name

"""What takes most of a step, as columns for MLflow's table view."""

from typing import Any

from dpprof.record.counters import CounterRow
from dpprof.record.record import OperatorRow, Record
from dpprof.vocabulary.units import mib, ms

_TOP_OPERATORS = 50
_TOP_KERNELS = 50


def tables(record: Record) -> dict[str, dict[str, list[Any]]]:
    """The tables of a record by the name of their artifact, as far as it has what they list."""
    found = {}
    if record.traced_steps:
        found["operators.json"] = _operators(record.operators[:_TOP_OPERATORS], record.traced_steps)
    if record.counters is not None:
        found["kernels.json"] = _kernels(record.counters.rows[:_TOP_KERNELS])
    return found


def _operators(rows: list[OperatorRow], steps: int) -> dict[str, list[Any]]:
    """Operators for one traced step; the record lists those with the most self time first."""
    columns: dict[str, list[Any]] = {
        "operator": [row.name for row in rows],
        "class": [row.operator_class for row in rows],
        "phase": [row.phase or "" for row in rows],
        "calls_per_step": [row.calls / steps for row in rows],
        "host_self_ms_per_step": [ms(row.self_s) / steps for row in rows],
        "allocated_mib_per_step": [mib(row.allocated) / steps for row in rows],
    }
    if any(row.device_self_s is not None for row in rows):
        columns["device_self_ms_per_step"] = [ms(row.device_self_s or 0.0) / steps for row in rows]
    return columns


def _kernels(rows: list[CounterRow]) -> dict[str, list[Any]]:
    """Kernels of the counted step; the record lists the longest first."""
    columns: dict[str, list[Any]] = {
        "kernel": [row.name for row in rows],
        "class": [row.kernel_class for row in rows],
        "phase": [row.phase or "" for row in rows],
        "launches": [row.launches for row in rows],
        "ms": [ms(row.seconds) for row in rows],
    }
    metrics = dict.fromkeys(metric for row in rows for metric in row.values)
    return columns | {metric: [row.values.get(metric) for row in rows] for metric in metrics}

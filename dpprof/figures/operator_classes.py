"""What the trace says of each class of operators, for one training step."""

from collections import defaultdict
from dataclasses import dataclass

from dpprof.record.record import OperatorRow, Record
from dpprof.vocabulary.units import mib, ms


@dataclass(frozen=True)
class OperatorClassFigures:
    """One class in a step. Self time is the device's where kernels were traced, else the host's."""

    self_ms: float
    calls: float
    allocated_mib: float


def operator_class_figures(record: Record) -> dict[str, OperatorClassFigures]:
    """The classes of the operators traced, by name; empty without the number of steps."""
    rows: dict[str, list[OperatorRow]] = defaultdict(list)
    for row in record.operators if record.traced_steps else ():
        rows[row.operator_class].append(row)
    return {name: _of(of_class, record.traced_steps or 0) for name, of_class in rows.items()}


def _of(rows: list[OperatorRow], num_steps: int) -> OperatorClassFigures:
    self_s = 0.0
    for row in rows:  # one by one: sum() would round differently from one Python version to the next
        self_s += row.self_s if row.device_self_s is None else row.device_self_s
    return OperatorClassFigures(
        self_ms=ms(self_s) / num_steps,
        calls=sum(row.calls for row in rows) / num_steps,
        allocated_mib=mib(sum(row.allocated for row in rows)) / num_steps,
    )

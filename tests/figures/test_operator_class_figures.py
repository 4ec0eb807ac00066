import pytest
from record_metrics import metrics

from dpprof.record.record import OperatorRow, Record

MIB = 2**20


def row(operator_class: str, calls: int, self_s: float, device_s: float | None, mib: int) -> OperatorRow:
    return OperatorRow("aten::x", operator_class, "forward", calls, self_s, device_s, mib * MIB)


def test_operators_are_totalled_by_class_and_divided_by_the_steps() -> None:
    rows = [
        row("copy", 3, 0.006, None, 12),
        row("matrix_product", 4, 0.004, None, 2),
        row("copy", 6, 0.003, None, 0),
    ]
    found = metrics(Record({}, {}, operators=rows, traced_steps=3))
    assert found == pytest.approx(
        {
            "profiler/copy/self_time_ms": 3,
            "profiler/copy/calls": 3,
            "profiler/copy/allocated_mib": 4,
            "profiler/matrix_product/self_time_ms": 4 / 3,
            "profiler/matrix_product/calls": 4 / 3,
            "profiler/matrix_product/allocated_mib": 2 / 3,
        }
    )


def test_operators_without_the_number_of_steps_are_no_figures() -> None:
    assert metrics(Record({}, {}, operators=[row("copy", 3, 0.006, None, 12)])) == {}


def test_self_time_is_the_devices_where_kernels_were_traced() -> None:
    rows = [row("copy", 1, 0.9, 0.002, 0), row("copy", 1, 0.9, 0.0, 0)]
    found = metrics(Record({}, {}, operators=rows, traced_steps=2))
    assert found["profiler/copy/self_time_ms"] == pytest.approx(1)

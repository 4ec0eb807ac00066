"""The figures of a record: of steps, operator classes, the ledger and ranks."""

import example_ledger
import pytest
from record_metrics import metrics

from dpprof.record.figures.figures import RanksFigures
from dpprof.record.record import Memory, OperatorRow, RankResult, Record
from dpprof.vocabulary.categories import CATEGORIES, OF_RANKS


def test_latency_and_throughput() -> None:
    record = Record(
        {},
        {},
        step_s=[0.030, 0.010, 0.100, 0.020, 0.040],
        phase_s={"forward": [0.002, 0.009, 0.001], "backward": [0.004, 0.006]},
        samples_per_step=6,
        tokens_per_step=600,
    )
    # Sorted: 10 20 30 40 100; p95 lies 0.95 * 4 = 3.8 places in: 40 + 0.8 * 60.
    assert metrics(record) == pytest.approx(
        {
            "latency/step_ms_median": 30,
            "latency/step_ms_mean": 40,
            "latency/step_ms_p95": 88,
            "latency/step_ms_iqr": 40 - 20,
            "latency/forward_ms": 2,
            "latency/backward_ms": 5,
            "throughput/samples_per_s": 6 / 0.030,
            "throughput/tokens_per_s": 600 / 0.030,
        }
    )


MIB = 2**20


def row(operator_class: str, calls: int, self_s: float, device_s: float | None, mib: int) -> OperatorRow:
    return OperatorRow("aten::x", operator_class, "forward", calls, self_s, device_s, mib * MIB)


def test_operators_are_totalled_by_class_and_divided_by_the_steps() -> None:
    product = row("matrix_product", 4, 0.004, None, 2)
    rows = [row("copy", 3, 0.006, None, 12), product, row("copy", 6, 0.003, None, 0)]
    assert metrics(Record({}, {}, operators=rows)) == {}
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


def test_self_time_is_the_devices_where_kernels_were_traced() -> None:
    rows = [row("copy", 1, 0.9, 0.002, 0), row("copy", 1, 0.9, 0.0, 0)]
    found = metrics(Record({}, {}, operators=rows, traced_steps=2))
    assert found["profiler/copy/self_time_ms"] == pytest.approx(1)


def test_the_ledgers_figures() -> None:
    found = metrics(example_ledger.record())
    of_ledger = ("io/", "flops/", "ledger/", "memory/at_peak/", "memory/peak_in_", "overhead/ledger_step")
    ours = {name: value for name, value in found.items() if name.startswith(of_ledger)}
    untracked = (3 * MIB // 10) / MIB
    nothing = {f"memory/at_peak/{category}_mib": 0.0 for category in CATEGORIES if category not in OF_RANKS}
    assert ours == pytest.approx(
        nothing
        | {
            "ledger/peak_mib": 30,
            "ledger/unexplained_pct": 100 * untracked / (30 + untracked),
            "overhead/ledger_step_ratio": 3,
            "memory/at_peak/parameters_mib": 4,
            "memory/at_peak/activations_mib": 8,
            "memory/at_peak/per_sample_gradients_mib": 16,
            "memory/at_peak/temporary_mib": 2,
            "memory/at_peak/untracked_mib": untracked,
            "memory/peak_in_forward_mib": 16,
            "memory/peak_in_backward_mib": 30,
            "io/forward/read_mib": 10,
            "io/forward/written_mib": 4,
            "io/backward/read_mib": 10,
            "io/backward/written_mib": 16,
            "io/total_mib": 42,
            "io/arithmetic_intensity": 11e9 / (42 * MIB),
            "flops/forward": 3e9,
            "flops/backward": 8e9,
            "flops/total": 11e9,
        }
    )


def test_the_ledger_without_anything_to_compare_it_with() -> None:
    ledger = example_ledger.ledger(traffic=[])
    found = metrics(example_ledger.record(memory=Memory(), step_s=[], ledger=ledger))
    lacking = ("ledger/unexplained_pct", "overhead/ledger_step_ratio", "memory/at_peak/untracked_mib")
    assert not {*lacking, "io/arithmetic_intensity"} & found.keys()
    assert found["io/total_mib"] == 0


def test_a_ledger_that_saw_more_than_the_allocator_has_nothing_untracked() -> None:
    found = metrics(example_ledger.record(memory=Memory(peak_allocated=24 * MIB)))
    assert found["ledger/unexplained_pct"] == -25
    assert "memory/at_peak/untracked_mib" not in found


def test_efficiency_is_a_ratio_of_throughputs_and_imbalance_one_of_times() -> None:
    """Alone, ranks that take 100 and 300 ms do 10 + 3.3 steps a second; together 2 in 300 ms, 6.7."""
    ranks = [RankResult(i, 8, "noise", step_s=[0.3], alone_step_s=[s]) for i, s in enumerate((0.1, 0.3))]
    found = RanksFigures.of(Record({}, {}, ranks=ranks))
    assert found is not None
    assert found.efficiency_pct == pytest.approx(50)
    assert found.imbalance == pytest.approx(1.5)

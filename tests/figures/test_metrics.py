import example_ledger
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.config.counter_metrics import DRAM_PCT, DRAM_READ, DRAM_WRITTEN, L2_HITS, L2_MISSES, L2_READ
from dpprof.figures.metrics import memory_metrics, metrics, ratios, series
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.record import Ceilings, GradientCheck, Memory, OperatorRow, PassOutcome, Record
from dpprof.vocabulary.categories import CATEGORIES

MIB = 1_048_576


def test_what_was_not_measured_has_no_entry() -> None:
    assert metrics(Record({}, {})) == {}
    assert series(Record({}, {})) == {}
    assert memory_metrics(Memory()) == {}


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


def test_one_step_has_no_spread_and_no_tokens_no_token_throughput() -> None:
    found = metrics(Record({}, {}, step_s=[0.5], samples_per_step=2))
    assert found == {
        "latency/step_ms_median": 500,
        "latency/step_ms_mean": 500,
        "throughput/samples_per_s": 4,
    }


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=50))
def test_quantiles_are_those_of_numpy(steps: list[float]) -> None:
    found = metrics(Record({}, {}, step_s=steps))
    q25, q50, q75, q95 = 1e3 * np.percentile(steps, [25, 50, 75, 95])
    tolerance = 1e-9 * max(steps) * 1e3
    assert found["latency/step_ms_median"] == pytest.approx(q50, abs=tolerance)
    assert found["latency/step_ms_p95"] == pytest.approx(q95, abs=tolerance)
    assert found["latency/step_ms_iqr"] == pytest.approx(q75 - q25, abs=tolerance)


def test_memory_is_in_mib_and_zero_is_a_figure() -> None:
    memory = Memory(
        peak_allocated=3 * MIB,
        peak_reserved=4 * MIB,
        first_step_peak=MIB // 2,
        after_step=2 * MIB,
        after_cleanup=0,
        device_used=1024 * MIB,
        peak_rss=1,
    )
    assert memory_metrics(memory) == {
        "memory/peak_allocated_mib": 3,
        "memory/peak_reserved_mib": 4,
        "memory/first_step_peak_allocated_mib": 0.5,
        "memory/after_step_mib": 2,
        "memory/after_cleanup_mib": 0,
        "memory/device_used_mib": 1024,
        "memory/peak_rss_mib": 1 / MIB,
    }


def test_overheads_held_bytes_and_gradient_check() -> None:
    record = Record(
        {},
        {},
        passes={"clean": PassOutcome("finished", seconds=1.5), "trace": PassOutcome("running")},
        startup_s=0.25,
        held={"gradients": 2 * MIB, "parameters": MIB},
        gradient_check=GradientCheck(1e-16, 1e-7, 5e-3),
        nonfinite_losses=3,
    )
    assert metrics(record) == {
        "memory/held_gradients_mib": 2,
        "memory/held_parameters_mib": 1,
        "overhead/startup_s": 0.25,
        "overhead/clean_pass_s": 1.5,
        "gradient_check/relative_error_float64": 1e-16,
        "gradient_check/relative_error_float32": 1e-7,
        "gradient_check/relative_error_bf16": 5e-3,
        "loss/nonfinite": 3,
    }


def test_what_others_had_is_in_percent_of_one_processor() -> None:
    record = Record({}, {}, timed_s=0.5, others_processor_s=0.75)
    assert metrics(record) == {"overhead/others_processor_pct": 150}
    assert metrics(Record({}, {}, timed_s=0.5, others_processor_s=0.0))["overhead/others_processor_pct"] == 0
    assert metrics(Record({}, {}, timed_s=0.5)) == {}


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


def test_series_are_by_step() -> None:
    record = Record({}, {}, step_s=[0.5, 0.25], memory=Memory(step_peak=[MIB, 3 * MIB]))
    assert series(record) == {
        "latency/step_ms": [500, 250],
        "memory/step_peak_allocated_mib": [1, 3],
    }


def test_ratios_compare_step_time_throughput_and_peaks_that_both_have() -> None:
    figures = {
        "latency/step_ms_median": 30.0,
        "latency/step_ms_mean": 31.0,
        "latency/forward_ms": 7.0,
        "throughput/samples_per_s": 2.0,
        "memory/peak_allocated_mib": 9.0,
        "memory/peak_reserved_mib": 9.0,
        "memory/peak_rss_mib": 5.0,
        "memory/after_step_mib": 4.0,
    }
    standard = {
        "latency/step_ms_median": 10.0,
        "latency/step_ms_mean": 10.0,
        "latency/forward_ms": 7.0,
        "throughput/samples_per_s": 8.0,
        "memory/peak_allocated_mib": 4.5,
        "memory/peak_rss_mib": 0.0,
        "memory/after_step_mib": 4.0,
    }
    assert ratios(figures, standard) == {
        "vs_standard/latency/step_ms_median_ratio": 3,
        "vs_standard/throughput/samples_per_s_ratio": 0.25,
        "vs_standard/memory/peak_allocated_mib_ratio": 2,
    }


def test_the_ledgers_figures() -> None:
    found = metrics(example_ledger.record())
    ours = {
        name: value
        for name, value in found.items()
        if name.startswith(
            ("io/", "flops/", "ledger/", "memory/at_peak/", "memory/peak_in_", "overhead/ledger_step")
        )
    }
    untracked = (3 * MIB // 10) / MIB
    nothing = {f"memory/at_peak/{category}_mib": 0.0 for category in CATEGORIES}
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
    found = metrics(
        example_ledger.record(memory=Memory(), step_s=[], ledger=example_ledger.ledger(traffic=[]))
    )
    assert "ledger/unexplained_pct" not in found
    assert "overhead/ledger_step_ratio" not in found
    assert "memory/at_peak/untracked_mib" not in found
    assert "io/arithmetic_intensity" not in found
    assert found["io/total_mib"] == 0


def test_a_ledger_that_saw_more_than_the_allocator_has_nothing_untracked() -> None:
    found = metrics(example_ledger.record(memory=Memory(peak_allocated=24 * MIB)))
    assert found["ledger/unexplained_pct"] == -25
    assert "memory/at_peak/untracked_mib" not in found


def test_the_ledgers_figures_compare_with_the_standard_trainers() -> None:
    standard = {
        "io/total_mib": 10.0,
        "flops/forward": 4.0,
        "memory/at_peak/activations_mib": 2.0,
        "ledger/x": 1.0,
    }
    found = ratios(
        {name: 3 * value for name, value in standard.items()} | {"io/clip/read_mib": 1.0}, standard
    )
    assert found == {
        f"vs_standard/{name}_ratio": 3
        for name in ("io/total_mib", "flops/forward", "memory/at_peak/activations_mib")
    }


def counted() -> list[CounterRow]:
    """Three kernels: 3 ms in forward, 1 ms in backward, and 1 ms outside the phases."""
    gemm = {DRAM_READ: 6 * MIB, DRAM_WRITTEN: 2 * MIB, DRAM_PCT: 40.0, L2_READ: 2**16, "x__y.max": 7.0}
    copy = {DRAM_READ: 4 * MIB, DRAM_WRITTEN: 4 * MIB, DRAM_PCT: 80.0, L2_READ: 2**15, "x__y.max": 9.0}
    return [
        CounterRow("gemm", "matrix_product", "forward", 2, 3e-3, gemm),
        CounterRow("copy", "copy", "backward", 1, 1e-3, copy),
        CounterRow("copy", "copy", None, 1, 1e-3, {DRAM_READ: MIB}),
    ]


def test_counters_by_step_phase_and_class() -> None:
    found = metrics(Record({}, {}, counters=CounterResult(counted())))
    assert found["counters/kernel_ms"] == pytest.approx(5)
    assert found["counters/kernel_launches"] == 4
    assert found["counters/dram_read_mib"] == pytest.approx(11)
    # The sum of bytes over the sum of times, not the mean of the kernels' throughputs.
    assert found["counters/dram_read_gib_per_s"] == pytest.approx(11 / 1024 / 5e-3)
    assert "counters/dram_written_mib" not in found  # one kernel lacks it
    assert found["counters/outside_phases_pct"] == pytest.approx(20)
    assert found["counters/forward/dram_written_mib"] == pytest.approx(2)
    assert found["counters/forward/l2_read_mib"] == pytest.approx(2)  # 65,536 sectors of 32 bytes
    assert found["counters/backward/dram_pct_of_peak"] == 80
    assert found["counters/backward/x__y.max"] == 9
    assert found["counters/class/copy/dram_read_mib"] == pytest.approx(5)
    assert found["counters/class/copy/kernel_launches"] == 2
    assert not any(name.startswith("counters/None") for name in found)


def test_hit_rates_are_hits_over_lookups() -> None:
    rows = [
        CounterRow("a", "copy", "forward", 1, 1.0, {L2_HITS: 10, L2_MISSES: 0}),
        CounterRow("b", "copy", "forward", 1, 9.0, {L2_HITS: 0, L2_MISSES: 2}),
    ]
    found = metrics(Record({}, {}, counters=CounterResult(rows)))
    assert found["counters/l2_hit_pct"] == found["counters/forward/l2_hit_pct"] == pytest.approx(1000 / 12)
    assert "counters/l1_hit_pct" not in found


def test_dram_bytes_beside_the_ledgers() -> None:
    ledger = example_ledger.ledger()
    rows = [row for row in counted() if row.phase]
    found = metrics(Record({}, {}, counters=CounterResult(rows), ledger=ledger))
    in_forward = sum(row.read + row.written for row in ledger.traffic if row.phase == "forward")
    total = sum(row.read + row.written for row in ledger.traffic)
    assert found["counters/dram_to_ledger_ratio"] == pytest.approx(16 * MIB / total)
    assert found["counters/forward/dram_to_ledger_ratio"] == pytest.approx(8 * MIB / in_forward)


def test_the_steps_counters_compare_with_the_standard_trainers() -> None:
    own = metrics(Record({}, {}, counters=CounterResult(counted()[:2])))
    standard = {name: value / 2 for name, value in own.items()}
    found = ratios(own, standard)
    assert found["vs_standard/counters/dram_read_mib_ratio"] == 2
    assert found["vs_standard/counters/dram_written_gib_per_s_ratio"] == 2
    assert not any("pct" in name or "/forward/" in name or "/class/" in name for name in found)


def test_ceilings() -> None:
    record = Record({}, {}, ceilings=Ceilings(3 * 2**30, 5e12, "fp32"))
    assert metrics(record) == {"ceilings/copy_gib_per_s": 3, "ceilings/matmul_tflop_per_s": 5}


def test_a_pass_that_was_skipped_took_no_time() -> None:
    passes = {"clean": PassOutcome("finished", None, 2.0), "counters": PassOutcome("skipped", "no GPU", 1e-5)}
    assert metrics(Record({}, {}, passes=passes)) == {"overhead/clean_pass_s": 2.0}

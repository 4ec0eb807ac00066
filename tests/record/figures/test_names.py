import dataclasses

import example_counters
import example_ledger
from record_metrics import metrics

from dpprof.record.figures.figures import Figures
from dpprof.record.figures.names import (
    RATIOS_OF_TIMES,
    logged,
    memory_metrics,
    named,
    ratio_name,
    ratios,
    series,
)
from dpprof.record.figures.names import metrics as metrics_by_name
from dpprof.record.record import (
    Ceilings,
    GradientCheck,
    Memory,
    ParameterGroup,
    PassOutcome,
    PassStatus,
    Record,
)

MIB = 2**20


def test_what_was_not_measured_has_no_entry() -> None:
    assert metrics(Record({}, {})) == {}
    assert series(Record({}, {})) == {}
    assert metrics_by_name(memory_metrics(Memory())) == {}


def test_memory_is_in_mib_and_zero_is_a_figure() -> None:
    memory = Memory(peak_allocated=3 * MIB, first_step_peak=MIB // 2, after_cleanup=0, peak_rss=1)
    assert metrics_by_name(memory_metrics(memory)) == {
        "memory/peak_allocated_mib": 3,
        "memory/first_step_peak_allocated_mib": 0.5,
        "memory/after_cleanup_mib": 0,
        "memory/peak_rss_mib": 1 / MIB,
    }


def test_overheads_held_bytes_and_gradient_check() -> None:
    record = Record(
        {},
        {},
        passes={
            "clean": PassOutcome(PassStatus.FINISHED, seconds=1.5),
            "trace": PassOutcome(PassStatus.RUNNING),
            "counters": PassOutcome(PassStatus.SKIPPED, "no GPU", 1e-5),
        },
        startup_s=0.25,
        held={"gradients": 2 * MIB, "parameters": MIB},
        gradient_check=GradientCheck(1e-16, 1e-7, 5e-3),
        nonfinite_losses=3,
        ceilings=Ceilings(3 * 2**30, 5e12, "fp32"),
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
        "ceilings/copy_gib_per_s": 3,
        "ceilings/matmul_tflop_per_s": 5,
    }


def test_parameters_that_train_and_that_do_not() -> None:
    groups = [
        ParameterGroup("lora_A.weight", 2, 30, trains=True, per_sample=True, moved=True),
        ParameterGroup("lora_B.weight", 2, 50, trains=True, per_sample=True, moved=True),
        ParameterGroup("Linear.weight", 4, 1000, trains=False, per_sample=False, moved=False),
    ]
    found = {"parameters/trainable": 80, "parameters/frozen": 1000}
    assert metrics(Record({}, {}, parameters=groups)) == found
    alone = Record({}, {}, parameters=groups[:2])
    assert logged(named(alone, Figures.of(alone))) == {"parameters/trainable": 80}


def test_what_others_had_is_in_percent_of_one_processor() -> None:
    record = Record({}, {}, timed_s=0.5, others_processor_s=0.75)
    assert metrics(record) == {"overhead/others_processor_pct": 150}
    assert metrics(Record({}, {}, timed_s=0.5, others_processor_s=0.0))["overhead/others_processor_pct"] == 0
    assert metrics(Record({}, {}, timed_s=0.5)) == {}


def test_series_are_by_step() -> None:
    record = Record({}, {}, step_s=[0.5, 0.25], memory=Memory(step_peak=[MIB, 3 * MIB]))
    assert series(record) == {"latency/step_ms": [500, 250], "memory/step_peak_allocated_mib": [1, 3]}


def test_what_compares_with_the_standard_trainers_are_times_of_a_step_peaks_and_traffic() -> None:
    record = example_ledger.record(
        counters=example_counters.counters(),
        samples_per_step=2,
        memory=Memory(1, 2, 3, saved={"all": 4}, after_step=5, peak_rss=6),
        ledger=example_ledger.ledger(at_peak={"noise": 1}),
    )
    known = [metric for metric in named(record, Figures.of(record)) if metric.value is not None]
    compared = {metric.name for metric in known if metric.compares}
    of_counters = {name for name in compared if name.startswith("counters/")}
    assert {name for name in compared - of_counters if not name.startswith("memory/at_peak/")} == {
        "latency/step_ms_median",
        "throughput/samples_per_s",
        "memory/peak_allocated_mib",
        "memory/peak_reserved_mib",
        "memory/peak_rss_mib",
        "memory/peak_in_forward_mib",
        "memory/peak_in_backward_mib",
        *(f"io/{phase}/{way}_mib" for phase in ("forward", "backward") for way in ("read", "written")),
        *(f"flops/{phase}" for phase in ("forward", "backward")),
        "io/total_mib",
        "io/arithmetic_intensity",
        "flops/total",
    }
    assert "memory/at_peak/noise_mib" in compared
    assert {"counters/kernel_ms", "counters/dram_read_mib", "counters/dram_written_mib"} <= of_counters
    times = {name for name in compared if name.startswith(("latency", "throughput"))}
    assert {ratio_name(name) for name in times} == RATIOS_OF_TIMES
    assert not any("pct" in name or "/forward/" in name or "/class/" in name for name in of_counters)


def test_mlflow_gets_the_headline_first_and_neither_details_nor_zeros_that_say_nothing() -> None:
    record = example_ledger.record(
        samples_per_step=2, memory=Memory(1, 2, 3), ledger=example_ledger.ledger(at_peak={"noise": 1})
    )
    record = dataclasses.replace(record, nonfinite_losses=0, timed_s=0.5, others_processor_s=0.0)
    record.passes["clean"] = PassOutcome(PassStatus.FINISHED, seconds=1.5)
    known = list(named(record, Figures.of(record)))
    kept = logged(known)
    first = ["memory/peak_allocated_mib", "latency/step_ms_median", "throughput/samples_per_s"]
    assert list(kept)[:5] == [*first, "io/total_mib", "flops/total"]
    assert "memory/at_peak/noise_mib" in kept
    assert kept["overhead/others_processor_pct"] == 0, "nobody else had the processors: that is a finding"
    everything = metrics_by_name(known)
    assert kept.items() <= everything.items()
    left_out = {name: everything[name] for name in everything.keys() - kept.keys()}
    assert left_out["overhead/clean_pass_s"] == 1.5
    assert left_out["loss/nonfinite"] == 0
    assert {name for name, value in left_out.items() if value} == {"overhead/clean_pass_s"}


def test_ratios_are_those_of_figures_that_both_have() -> None:
    own = {"a": 30.0, "b": 9.0, "c": 5.0, "d": 4.0, "e": 1.0}
    standard = {"a": 10.0, "c": 0.0, "d": 4.0, "e": 2.0}
    assert ratios(own, standard, ["a", "b", "c", "e", "f"]) == {
        "vs_standard/a_ratio": 3,
        "vs_standard/e_ratio": 0.5,
    }

"""From a record to named figures: the only place where bytes become MiB and seconds become ms."""

import statistics
from collections import defaultdict
from collections.abc import Iterator

from dpprof.record import Memory, Record

MIB = 2**20


def metrics(record: Record) -> dict[str, float]:
    """Every figure of a record under its metric name. What was not measured has no entry."""
    return dict(_latency(record)) | memory_metrics(record.memory) | dict(_rest(record))


def series(record: Record) -> dict[str, list[float]]:
    """Figures that a record holds one by one for each measured step."""
    found = {"latency/step_ms": [1e3 * s for s in record.step_s]}
    found["memory/step_peak_allocated_mib"] = [b / MIB for b in record.memory.step_peak]
    return {name: values for name, values in found.items() if values}


def memory_metrics(memory: Memory) -> dict[str, float]:
    """The memory figures that are known, in MiB."""
    named = {
        "peak_allocated": memory.peak_allocated,
        "peak_reserved": memory.peak_reserved,
        "first_step_peak_allocated": memory.first_step_peak,
        "after_step": memory.after_step,
        "after_cleanup": memory.after_cleanup,
        "device_used": memory.device_used,
        "peak_rss": memory.peak_rss,
    }
    return {f"memory/{name}_mib": value / MIB for name, value in named.items() if value is not None}


def ratios(figures: dict[str, float], standard: dict[str, float]) -> dict[str, float]:
    """`vs_standard/<metric>_ratio` for the figures that compare, given the twin's with StandardTrainer."""
    compared = ("latency/step_ms_median", "throughput/samples_per_s", "memory/peak_")
    return {
        f"vs_standard/{name}_ratio": figures[name] / standard[name]
        for name in figures
        if name.startswith(compared) and standard.get(name)
    }


def _latency(record: Record) -> Iterator[tuple[str, float]]:
    steps = record.step_s
    if not steps:
        return
    median = statistics.median(steps)
    yield "latency/step_ms_median", 1e3 * median
    yield "latency/step_ms_mean", 1e3 * statistics.fmean(steps)
    if len(steps) > 1:
        cuts = statistics.quantiles(steps, n=20, method="inclusive")
        yield "latency/step_ms_p95", 1e3 * cuts[18]
        yield "latency/step_ms_iqr", 1e3 * (cuts[14] - cuts[4])
    for phase, seconds in record.phase_s.items():
        yield f"latency/{phase}_ms", 1e3 * statistics.median(seconds)
    if record.samples_per_step is not None:
        yield "throughput/samples_per_s", record.samples_per_step / median
    if record.tokens_per_step is not None:
        yield "throughput/tokens_per_s", record.tokens_per_step / median


def _rest(record: Record) -> Iterator[tuple[str, float]]:
    for category, held in record.held.items():
        yield f"memory/held_{category}_mib", held / MIB
    if record.startup_s is not None:
        yield "overhead/startup_s", record.startup_s
    if record.involuntary_switches is not None and record.step_s:
        yield "overhead/involuntary_switches_per_step", record.involuntary_switches / len(record.step_s)
    for name, outcome in record.passes.items():
        if outcome.seconds is not None:
            yield f"overhead/{name}_pass_s", outcome.seconds
    if record.traced_steps:
        yield from _operator_classes(record, record.traced_steps)
    if record.gradient_check is not None:
        yield "gradient_check/relative_error_float64", record.gradient_check.relative_error_float64
        yield "gradient_check/relative_error_float32", record.gradient_check.relative_error_float32


def _operator_classes(record: Record, num_steps: int) -> Iterator[tuple[str, float]]:
    """Per training step. Self time is the device's where kernels were traced, else the host's."""
    self_s: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    allocated: dict[str, int] = defaultdict(int)
    for row in record.operators:
        self_s[row.operator_class] += row.self_s if row.device_self_s is None else row.device_self_s
        calls[row.operator_class] += row.calls
        allocated[row.operator_class] += row.allocated
    for name in self_s:
        yield f"profiler/{name}/self_time_ms", 1e3 * self_s[name] / num_steps
        yield f"profiler/{name}/calls", calls[name] / num_steps
        yield f"profiler/{name}/allocated_mib", allocated[name] / MIB / num_steps

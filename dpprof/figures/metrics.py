"""From a record to named figures: the only place where bytes become MiB and seconds become ms."""

import statistics
from collections import defaultdict
from collections.abc import Iterator

from dpprof.config import counter_metrics as ncu
from dpprof.config.flat import ESTIMATE, from_flat
from dpprof.figures import capacity
from dpprof.record.counters import CounterRow, total
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import GradientCheck, Memory, Record
from dpprof.vocabulary.categories import CATEGORIES

MIB = 2**20
UNTRACKED = "untracked"
_UNEXPLAINED_LIMIT_PCT = 2.0
# Names of what is counted in bytes, or in sectors of the L2 cache, with the bytes of one.
_COUNTED_BYTES = {
    ncu.DRAM_READ: ("dram_read", 1),
    ncu.DRAM_WRITTEN: ("dram_written", 1),
    ncu.L2_READ: ("l2_read", ncu.SECTOR_BYTES),
    ncu.L2_WRITTEN: ("l2_written", ncu.SECTOR_BYTES),
    ncu.L2_ATOMIC: ("l2_atomic", ncu.SECTOR_BYTES),
    ncu.L2_REDUCTION: ("l2_reduction", ncu.SECTOR_BYTES),
    ncu.L1_LOAD: ("l1_global_load", 1),
    ncu.L1_STORE: ("l1_global_store", 1),
}
_LOOKUPS = {"l1": (ncu.L1_HITS, ncu.L1_MISSES), "l2": (ncu.L2_HITS, ncu.L2_MISSES)}


def metrics(record: Record) -> dict[str, float]:
    """Every figure of a record under its metric name. What was not measured has no entry.

    An estimate's figures have the names of measured ones; where both may meet they go under `estimate/`.
    """
    return dict(_latency(record)) | memory_metrics(record.memory) | dict(_rest(record))


def part(figures: dict[str, float], prefix: str, suffix: str) -> dict[str, float]:
    """The figures named `<prefix><name><suffix>`, by name."""
    return {
        name.removeprefix(prefix).removesuffix(suffix): value
        for name, value in figures.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }


def series(record: Record) -> dict[str, list[float]]:
    """Figures that a record holds one by one for each measured step."""
    found = {"latency/step_ms": [1e3 * s for s in record.step_s]}
    found["step/samples"] = [float(n) for n in record.step_samples]
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
    named |= {f"saving_{name}": value for name, value in memory.saved.items()}
    return {f"memory/{name}_mib": value / MIB for name, value in named.items() if value is not None}


def is_estimate(record: Record) -> bool:
    """Whether the record's figures were computed on fake tensors."""
    return ESTIMATE in record.passes


def unexplained_pct(record: Record) -> float | None:
    """How much of the allocator's peak the ledger did not see, in percent; None without both figures."""
    truth = record.memory.peak_allocated
    if record.ledger is None or not truth or is_estimate(record):
        return None
    return 100 * (truth - record.ledger.peak) / truth


def ledger_doubt(unexplained: float | None) -> str | None:
    """What to say of a ledger that leaves too much of the allocator's peak unexplained, if it does."""
    if unexplained is None or abs(unexplained) <= _UNEXPLAINED_LIMIT_PCT:
        return None
    side = "less" if unexplained > 0 else "more"
    return (
        f"the ledger sees {abs(unexplained):.1f} % {side} than the allocator's peak "
        f"(limit {_UNEXPLAINED_LIMIT_PCT:g} %): its categories do not tell the whole memory"
    )


def at_peak(record: Record) -> dict[str, int]:
    """Bytes at the peak by category, `untracked` included: what the allocator held beyond the ledger's."""
    if record.ledger is None:
        return {}
    found = dict(record.ledger.at_peak)
    untracked = (record.memory.peak_allocated or 0) - record.ledger.peak
    return found | {UNTRACKED: untracked} if untracked > 0 else found


def ratios(figures: dict[str, float], standard: dict[str, float]) -> dict[str, float]:
    """`vs_standard/<metric>_ratio` for the figures that compare, given the twin's with StandardTrainer."""
    compared = (
        "latency/step_ms_median",
        "throughput/samples_per_s",
        "memory/peak_",
        "memory/at_peak/",
        "io/",
        "flops/",
    )
    return {
        f"vs_standard/{name}_ratio": figures[name] / standard[name]
        for name in figures
        if (name.startswith(compared) or _is_counted_in_the_step(name)) and standard.get(name)
    }


def _is_counted_in_the_step(name: str) -> bool:
    """Whether a figure is an amount or a rate that hardware counters found over a whole step."""
    return name.startswith("counters/") and name.count("/") == 1 and "pct" not in name and "ratio" not in name


def _estimate(record: Record, ledger: LedgerResult) -> Iterator[tuple[str, float]]:
    """What an estimate is held against a device by."""
    config = from_flat(record.config)
    added = capacity.from_allocator(config, ledger) | capacity.beyond_allocator(config)
    for name, num_bytes in added.items():
        yield f"memory/added/{name}_mib", num_bytes / MIB
    for doubt in ledger.doubts:
        if doubt.num_bytes is not None:
            yield f"memory/doubt/{doubt.name}_mib", doubt.num_bytes / MIB
    in_doubt = capacity.doubt_bytes(ledger)
    if ledger.doubts and in_doubt is not None:
        yield "memory/doubt_mib", in_doubt / MIB
    if ledger.growth > 0:
        yield "memory/growth_per_step_mib", ledger.growth / MIB
    needed, limit = capacity.needed_bytes(config, ledger), capacity.capacity_bytes(config)
    yield "memory/needed_mib", needed / MIB
    if limit is not None:
        yield "memory/capacity_mib", limit / MIB
        fits = capacity.fits(config, ledger)
        if fits is not None:
            yield "memory/fits", float(fits)
    floor = capacity.floor_s(config, ledger)
    for phase, seconds in floor.items():
        yield f"floor/{phase}_ms", 1e3 * seconds
    if floor:
        yield "floor/step_ms", 1e3 * sum(floor.values())


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
    if record.step_samples:
        yield "step/largest_batch", max(record.step_samples)
        yield "step/mean_batch", statistics.fmean(record.step_samples)
    per_s = 1 / median
    if record.step_samples and record.samples_per_step:  # they vary: those of all steps, over all their time
        per_s = sum(record.step_samples) / record.samples_per_step / sum(steps)
    if record.samples_per_step is not None:
        yield "throughput/samples_per_s", record.samples_per_step * per_s
    if record.tokens_per_step is not None:
        yield "throughput/tokens_per_s", record.tokens_per_step * per_s


def _rest(record: Record) -> Iterator[tuple[str, float]]:
    for category, held in record.held.items():
        yield f"memory/held_{category}_mib", held / MIB
    if record.startup_s is not None:
        yield "overhead/startup_s", record.startup_s
    if record.involuntary_switches is not None and record.step_s:
        yield "overhead/involuntary_switches_per_step", record.involuntary_switches / len(record.step_s)
    if record.others_processor_s is not None and record.timed_s:
        yield "overhead/others_processor_pct", 100 * record.others_processor_s / record.timed_s
    for name, outcome in record.passes.items():
        if outcome.seconds is not None and outcome.status != "skipped":
            yield f"overhead/{name}_pass_s", outcome.seconds
    if record.pace is not None and record.pace.step_s:
        yield "pace/step_ratio", statistics.median(record.pace.ratios)
        yield "pace/fixed_ms", 1e3 * statistics.median(record.pace.fixed_s)
    if record.ledger is not None:
        yield from _ledger(record, record.ledger)
        if is_estimate(record):
            yield from _estimate(record, record.ledger)
    if record.traced_steps:
        yield from _operator_classes(record, record.traced_steps)
    if record.ceilings is not None:
        yield "ceilings/copy_gib_per_s", record.ceilings.copy_bytes_per_s / 2**30
        yield "ceilings/matmul_tflop_per_s", record.ceilings.matmul_flop_per_s / 1e12
    if record.counters is not None:
        yield from _counters(record, record.counters.rows)
    if record.nonfinite_losses is not None:
        yield "loss/nonfinite", float(record.nonfinite_losses)
    if record.gradient_check is not None:
        yield from _gradient_check(record.gradient_check)


def _gradient_check(check: GradientCheck) -> Iterator[tuple[str, float]]:
    errors = {
        "float64": check.relative_error_float64,
        "float32": check.relative_error_float32,
        "bf16": check.relative_error_bf16,
    }
    for name, error in errors.items():
        if error is not None:
            yield f"gradient_check/relative_error_{name}", error


def _ledger(record: Record, ledger: LedgerResult) -> Iterator[tuple[str, float]]:
    yield "ledger/peak_mib", ledger.peak / MIB
    unexplained = unexplained_pct(record)
    if unexplained is not None:
        yield "ledger/unexplained_pct", unexplained
    if record.step_s and not record.step_samples:
        yield "overhead/ledger_step_ratio", ledger.step_s / statistics.median(record.step_s)
    for category, num_bytes in (dict.fromkeys(CATEGORIES, 0) | at_peak(record)).items():
        yield f"memory/at_peak/{category}_mib", num_bytes / MIB
    for phase, peak in ledger.phase_peak.items():
        yield f"memory/peak_in_{phase}_mib", peak.num_bytes / MIB
    for phase in ledger.phase_peak:
        rows = [row for row in ledger.traffic if row.phase == phase]
        yield f"io/{phase}/read_mib", sum(row.read for row in rows) / MIB
        yield f"io/{phase}/written_mib", sum(row.written for row in rows) / MIB
        yield f"flops/{phase}", sum(row.flops for row in rows)
    moved = sum(row.read + row.written for row in ledger.traffic)
    flops = sum(row.flops for row in ledger.traffic)
    yield "io/total_mib", moved / MIB
    yield "flops/total", flops
    if moved:
        yield "io/arithmetic_intensity", flops / moved


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


def _counters(record: Record, rows: list[CounterRow]) -> Iterator[tuple[str, float]]:
    """Hardware counters of the whole step, of every phase and of every kernel class."""
    step = total("step", "", None, rows)
    yield from _under("counters", counted(step))
    phases = dict.fromkeys(row.phase for row in rows if row.phase is not None)
    ledger = record.ledger.traffic if record.ledger else []
    yield from _dram_to_ledger("counters", step, sum(row.read + row.written for row in ledger))
    for phase in phases:
        within = total(phase, "", phase, (row for row in rows if row.phase == phase))
        yield from _under(f"counters/{phase}", counted(within))
        moved = sum(row.read + row.written for row in ledger if row.phase == phase)
        yield from _dram_to_ledger(f"counters/{phase}", within, moved)
    for name in dict.fromkeys(row.kernel_class for row in rows):
        within = total(name, name, None, (row for row in rows if row.kernel_class == name))
        yield from _under(f"counters/class/{name}", counted(within))
    if step.seconds:
        outside = total("", "", None, (row for row in rows if row.phase is None))
        yield "counters/outside_phases_pct", 100 * outside.seconds / step.seconds


def _under(prefix: str, figures: dict[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in figures.items():
        yield f"{prefix}/{name}", value


def counted(row: CounterRow) -> dict[str, float]:
    """What hardware counters found, by name; a throughput is the sum of bytes over that of kernel times."""
    found = {"kernel_ms": 1e3 * row.seconds, "kernel_launches": float(row.launches)}
    for metric, value in row.values.items():
        if metric in _COUNTED_BYTES:
            name, unit_bytes = _COUNTED_BYTES[metric]
            found[f"{name}_mib"] = value * unit_bytes / MIB
            if row.seconds:
                found[f"{name}_gib_per_s"] = value * unit_bytes / 2**30 / row.seconds
        elif metric == ncu.DRAM_PCT:
            found["dram_pct_of_peak"] = value
        else:
            found[metric] = value
    for level, (hits, misses) in _LOOKUPS.items():
        lookups = row.values.get(hits, 0.0) + row.values.get(misses, 0.0)
        if hits in row.values and misses in row.values and lookups:
            found[f"{level}_hit_pct"] = 100 * row.values[hits] / lookups
    return found


def _dram_to_ledger(prefix: str, row: CounterRow, moved: int) -> Iterator[tuple[str, float]]:
    """DRAM bytes over those that operators ask for: below 1, caches saved the rest."""
    if moved and ncu.DRAM_READ in row.values and ncu.DRAM_WRITTEN in row.values:
        dram = row.values[ncu.DRAM_READ] + row.values[ncu.DRAM_WRITTEN]
        yield f"{prefix}/dram_to_ledger_ratio", dram / moved

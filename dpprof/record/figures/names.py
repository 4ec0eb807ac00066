"""Metric names in MLflow, TensorBoard and tables; only this file gives them, and names are never parsed."""

import hashlib
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from dpprof.record.figures.counters import CounterFigures, StepCounters
from dpprof.record.figures.estimate import EstimateFigures
from dpprof.record.figures.figures import Figures, PhaseFigures, RankFigures, RanksFigures
from dpprof.record.figures.ledger import LedgerFigures, flops_in_theory, flops_of_layers
from dpprof.record.figures.verdicts import FAIL, WARNING, having, least_chance
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Memory, PassStatus, Predicted, PrivacyResult, Record, VerifyResult
from dpprof.vocabulary.grouping import grouped, summed
from dpprof.vocabulary.units import gib, mib, ms

PEAK = "memory/peak_allocated_mib"
STEP = "latency/step_ms_median"
IQR = "latency/step_ms_iqr"
LARGEST_BATCH, MEAN_BATCH = "step/largest_batch", "step/mean_batch"
OTHERS_PCT, SWITCHES = "overhead/others_processor_pct", "overhead/involuntary_switches_per_step"
LEDGER_PEAK, UNEXPLAINED = "ledger/peak_mib", "ledger/unexplained_pct"
GROWTH, DOUBT = "memory/growth_per_step_mib", "memory/doubt_mib"
KERNEL_MS, DRAM_TO_LEDGER = "counters/kernel_ms", "counters/dram_to_ledger_ratio"
DRAM_READ, DRAM_WRITTEN = "counters/dram_read_mib", "counters/dram_written_mib"
L2_READ, L2_WRITTEN = "counters/l2_read_mib", "counters/l2_written_mib"
COPY, MATMUL = "ceilings/copy_gib_per_s", "ceilings/matmul_tflop_per_s"
SENT, SENDING = "communication/sent_mib", "predicted/communication_ms"
EXPOSED, EXPOSED_PCT = "communication/exposed_ms", "communication/exposed_pct"
SAMPLES, TOKENS = "throughput/samples_per_s", "throughput/tokens_per_s"
MOVED = "io/total_mib"
FLOPS = "flops/total"
FLOPS_OF_LAYERS, FLOPS_IN_THEORY = "flops/of_layers", "flops/in_theory"
NEEDED = "memory/needed_mib"
CAPACITY = "memory/capacity_mib"
FITS = "memory/fits"
# A predicted step, its least and its most.
PREDICTED = "predicted/step_ms"
PREDICTIONS = (PREDICTED, f"{PREDICTED}_least", f"{PREDICTED}_most")
EPSILON, DELTA, NOISE = "privacy/epsilon", "privacy/delta", "privacy/noise_multiplier"
RATE, STEPS = "privacy/sample_rate", "privacy/steps"


class Column(NamedTuple):
    """A figure in tables that compare runs; `has_ratio`: its ratio to standard training stands beside it."""

    heading: str
    unit: str = ""
    has_ratio: bool = True

    @property
    def title(self) -> str:
        """Heading with the unit."""
        return f"{self.heading} [{self.unit}]" if self.unit else self.heading


# The columns of these tables by metric name, in their order.
COLUMNS = {
    STEP: Column("step time", "ms"),
    PEAK: Column("peak memory", "MiB"),
    SAMPLES: Column("samples/s", has_ratio=False),
    MOVED: Column("bytes moved", "MiB"),
}
# The most important figures of a run.
HEADLINE = (PEAK, STEP, SAMPLES, MOVED, FLOPS, NEEDED, FITS, PREDICTED)

# What MLflow's names cannot have, and the signs that `key_of` and paths use.
_NOT_IN_NAMES = re.compile(r"[^\w.\- ]")
_LONGEST_KEY = 100  # of the 250 characters of a name in MLflow
# Names beside those of phases: `latency/step_ms`, `flops/total`, `counters/class/...`.
_TAKEN = frozenset({"step", "communication", "total", "of_layers", "in_theory", "class"})


class Logged(Enum):
    """Condition under which MLflow gets a figure. Records and exports have them all."""

    ALWAYS = "always"
    UNLESS_ZERO = "unless zero"  # 0 in most runs, and then of no interest
    NEVER = "never"  # a detail, for the tables and pages of a run


class Metric(NamedTuple):
    """A figure and its name; `compares` tells that its ratio to standard training shows privacy's cost."""

    name: str
    value: float | None
    compares: bool = False
    logged: Logged = Logged.ALWAYS


def key_of(phase: str) -> str:
    """Return a phase as a part of metric names, the same for no other phase.

    A phase may have any name, and MLflow's names have letters, digits and some signs: others become their
    bytes in hexadecimal, as in a URL, after a colon.
    """
    if phase in _TAKEN:
        return f"phase:{phase}"
    key = _NOT_IN_NAMES.sub(lambda found: _coded(found[0]), phase)
    if not key.strip("."):  # would be a folder's name
        key = _coded(phase) or ":"
    if len(key) <= _LONGEST_KEY:
        return key
    digest = hashlib.sha256(phase.encode(errors="surrogatepass")).hexdigest()
    return f"{key[: _LONGEST_KEY // 2]}:{digest[: _LONGEST_KEY // 4]}"


def _coded(text: str) -> str:
    return "".join(f":{byte:02X}" for byte in text.encode(errors="surrogatepass"))


def predicted_name(phase: str) -> str:
    """Return the metric name of a phase's predicted time."""
    return f"predicted/{key_of(phase)}_ms"


def ratio_name(name: str) -> str:
    """Return the metric name of a figure's ratio to standard training."""
    return f"vs_standard/{name}_ratio"


# These ratios mean nothing where a run was disturbed.
RATIOS_OF_TIMES = frozenset({ratio_name(STEP), ratio_name(SAMPLES)})
# The ratios that MLflow gets.
HEADLINE_RATIOS = tuple(ratio_name(name) for name in (PEAK, STEP, SAMPLES, MOVED, FLOPS))


def metrics(named: Iterable[Metric]) -> dict[str, float]:
    """Return figures by metric name, without those that were not measured."""
    return {metric.name: metric.value for metric in named if metric.value is not None}


def logged(named: Iterable[Metric]) -> dict[str, float]:
    """Return the figures that MLflow gets by metric name, the headline first."""
    kept = (m for m in named if m.logged is Logged.ALWAYS or (m.logged is Logged.UNLESS_ZERO and m.value))
    found = metrics(kept)
    return {name: found[name] for name in HEADLINE if name in found} | found


def series(record: Record) -> dict[str, list[float]]:
    """Return the figures that a record holds for each measured step."""
    found = {
        "latency/step_ms": [ms(s) for s in record.step_s],
        "step/samples": [float(n) for n in record.step_samples],
        "memory/step_peak_allocated_mib": [mib(b) for b in record.memory.step_peak],
    }
    return {name: values for name, values in found.items() if values}


def ratios(
    figures: Mapping[str, float], standard: Mapping[str, float], compared: Iterable[str]
) -> dict[str, float]:
    """Return the ratios of the metrics `compared` to the StandardTrainer twin's, where both exist."""
    return {
        ratio_name(name): figures[name] / standard[name]
        for name in compared
        if name in figures and standard.get(name)
    }


def named(record: Record, figures: Figures) -> Iterator[Metric]:
    """Yield every figure of a run; an estimate's go under `estimate/` where they may meet measured ones."""
    if record.step_s:
        yield from _step(record, figures.phases)
    yield from memory_metrics(record.memory)
    for category, num_bytes in record.held.items():
        yield Metric(f"memory/held_{category}_mib", mib(num_bytes))
    if record.parameters:
        yield Metric(
            "parameters/trainable", sum(group.numbers for group in record.parameters if group.trains)
        )
        frozen = sum(group.numbers for group in record.parameters if not group.trains)
        yield Metric("parameters/frozen", frozen, logged=Logged.UNLESS_ZERO)
    yield from _overheads(record)
    if record.pace is not None and record.pace.step_s:
        yield Metric("pace/step_ratio", statistics.median(record.pace.ratios))
        yield Metric("pace/fixed_ms", ms(statistics.median(record.pace.fixed_s)))
    if record.ledger is not None and figures.ledger is not None:
        yield from _ledger(figures.ledger, figures.phases)
        yield from _traffic(record, record.ledger)
        if figures.sent_mib is not None:
            yield from _communication(record.ledger, figures.sent_mib)
    if figures.ranks is not None and figures.ranks.slowest is not None:
        yield from _ranks(figures.ranks, figures.ranks.slowest)
    if figures.estimate is not None:
        yield from _estimate(figures.estimate)
    yield from _operator_classes(record)
    if record.ceilings is not None:
        yield Metric(COPY, gib(record.ceilings.copy_bytes_per_s))
        yield Metric(MATMUL, record.ceilings.matmul_flop_per_s / 1e12)
    if figures.counters is not None:
        yield from _step_counters(figures.counters)
    if record.nonfinite_losses is not None:
        yield Metric("loss/nonfinite", float(record.nonfinite_losses), logged=Logged.UNLESS_ZERO)
    if record.privacy is not None:
        yield from privacy_metrics(record.privacy)
    if record.gradient_check is not None:
        for key in ("float64", "float32", "tf32", "bf16"):
            error = getattr(record.gradient_check, f"relative_error_{key}")
            yield Metric(f"gradient_check/relative_error_{key}", error)
    if record.verify is not None:
        yield from _verify(record.verify)


def memory_metrics(memory: Memory) -> Iterator[Metric]:
    """Yield the memory figures of a run or a failure."""
    for name, num_bytes, compares in (
        (PEAK, memory.peak_allocated, True),
        ("memory/peak_reserved_mib", memory.peak_reserved, True),
        ("memory/first_step_peak_allocated_mib", memory.first_step_peak, False),
        ("memory/after_step_mib", memory.after_step, False),
        ("memory/after_cleanup_mib", memory.after_cleanup, False),
        ("memory/device_used_mib", memory.device_used, False),
        ("memory/peak_rss_mib", memory.peak_rss, True),
        *((f"memory/saving_{name}_mib", saved, False) for name, saved in memory.saved.items()),
    ):
        yield Metric(name, None if num_bytes is None else mib(num_bytes), compares)


def privacy_metrics(found: PrivacyResult) -> Iterator[Metric]:
    """Yield the accountant's inputs, and epsilon if there is one."""
    for name in (EPSILON, DELTA, NOISE, RATE, STEPS):
        yield Metric(name, getattr(found, name.removeprefix("privacy/")))


def plan_metrics(predicted: Predicted) -> Iterator[Metric]:
    """Yield the plan's predictions."""
    least, most = predicted.step_s_least, predicted.step_s_most
    yield Metric("plan/peak_mib", None if predicted.peak_bytes is None else mib(predicted.peak_bytes))
    yield Metric("plan/step_ms_least", None if least is None else ms(least))
    yield Metric("plan/step_ms_most", None if most is None else ms(most))


def _step(record: Record, phases: Mapping[str, PhaseFigures]) -> Iterator[Metric]:
    steps, samples = record.step_s, record.step_samples
    yield Metric(STEP, ms(statistics.median(steps)), compares=True)
    yield Metric("latency/step_ms_mean", ms(statistics.fmean(steps)))
    if len(steps) > 1:
        cuts = statistics.quantiles(steps, n=20, method="inclusive")
        yield Metric("latency/step_ms_p95", ms(cuts[18]))
        yield Metric(IQR, ms(cuts[14] - cuts[4]))
    for name, phase in phases.items():
        yield Metric(f"latency/{key_of(name)}_ms", phase.ms)
    per_s = 1 / statistics.median(steps)
    if samples:
        yield Metric(LARGEST_BATCH, max(samples))
        yield Metric(MEAN_BATCH, statistics.fmean(samples))
        if record.samples_per_step:  # steps of the usual size: all samples over the total time
            per_s = sum(samples) / record.samples_per_step / sum(steps)
    for name, of_step in ((SAMPLES, record.samples_per_step), (TOKENS, record.tokens_per_step)):
        yield Metric(name, None if of_step is None else of_step * per_s, compares=name == SAMPLES)


def _overheads(record: Record) -> Iterator[Metric]:
    yield Metric("overhead/startup_s", record.startup_s)
    if record.involuntary_switches is not None and record.step_s:
        yield Metric(SWITCHES, record.involuntary_switches / len(record.step_s))
    if record.others_processor_s is not None and record.timed_s:
        yield Metric(OTHERS_PCT, 100 * record.others_processor_s / record.timed_s)
    for name, outcome in record.passes.items():
        if outcome.status != PassStatus.SKIPPED:
            yield Metric(f"overhead/{name}_pass_s", outcome.seconds, logged=Logged.NEVER)


def _operator_classes(record: Record) -> Iterator[Metric]:
    """Yield figures per step. Self time is the device's where kernels were traced, else the host's."""
    steps = record.traced_steps or 0
    rows = grouped(record.operators if steps else (), lambda row: row.operator_class)
    for name, of_class in rows.items():
        self_s = 0.0
        for row in of_class:  # one by one: sum() would round differently from one Python version to the next
            self_s += row.self_s if row.device_self_s is None else row.device_self_s
        allocated = mib(sum(row.allocated for row in of_class))
        yield Metric(f"profiler/{name}/self_time_ms", ms(self_s) / steps)
        calls = sum(row.calls for row in of_class)
        yield Metric(f"profiler/{name}/calls", calls / steps, logged=Logged.NEVER)
        yield Metric(f"profiler/{name}/allocated_mib", allocated / steps, logged=Logged.NEVER)


def _ledger(ledger: LedgerFigures, phases: Mapping[str, PhaseFigures]) -> Iterator[Metric]:
    yield Metric(LEDGER_PEAK, ledger.peak_mib)
    yield Metric(UNEXPLAINED, ledger.unexplained_pct, logged=Logged.UNLESS_ZERO)
    yield Metric("overhead/ledger_step_ratio", ledger.slowdown)
    for category, held in ledger.all_at_peak_mib.items():
        yield Metric(f"memory/at_peak/{category}_mib", held, True, Logged.UNLESS_ZERO)
    for name, phase in phases.items():
        yield Metric(f"memory/peak_in_{key_of(name)}_mib", phase.peak_mib, compares=True)
    for name, phase in phases.items():
        yield Metric(f"io/{key_of(name)}/read_mib", phase.read_mib, True, Logged.UNLESS_ZERO)
        yield Metric(f"io/{key_of(name)}/written_mib", phase.written_mib, True, Logged.UNLESS_ZERO)
        yield Metric(f"flops/{key_of(name)}", phase.flops, True, Logged.UNLESS_ZERO)


def _traffic(record: Record, ledger: LedgerResult) -> Iterator[Metric]:
    moved, in_theory = ledger.moved_in_step, flops_in_theory(record, ledger)
    yield Metric(MOVED, mib(moved.num_bytes), compares=True)
    yield Metric(FLOPS, moved.flops, compares=True)
    if in_theory is not None:
        yield Metric(FLOPS_OF_LAYERS, flops_of_layers(ledger))
        yield Metric(FLOPS_IN_THEORY, in_theory)
    if moved.num_bytes:
        yield Metric("io/arithmetic_intensity", moved.flops / moved.num_bytes, compares=True)


def _communication(ledger: LedgerResult, sent_mib: float) -> Iterator[Metric]:
    rows = [row for row in ledger.collectives if row.phase is not None]
    yield Metric(SENT, sent_mib, compares=True)
    yield Metric("communication/calls", float(sum(row.calls for row in rows)), compares=True)
    for phase, num_bytes in summed((row.phase or "", row.sent) for row in rows).items():
        yield Metric(f"communication/{key_of(phase)}/sent_mib", mib(num_bytes))


def _ranks(found: RanksFigures, slowest: RankFigures) -> Iterator[Metric]:
    yield Metric(EXPOSED, slowest.exposed_ms, compares=True)
    yield Metric(EXPOSED_PCT, found.exposed_pct)
    yield Metric("ranks/slowest", float(slowest.rank))
    yield Metric("ranks/alone_step_ms", slowest.alone_ms, compares=True)
    yield Metric("ranks/imbalance_ratio", found.imbalance)
    yield Metric("ranks/scaling_efficiency_pct", found.efficiency_pct)
    if found.largest is not None:
        yield Metric("ranks/largest_peak_mib", found.largest.peak_mib)
        yield Metric("ranks/largest_peak_rank", float(found.largest.rank))


def _estimate(estimate: EstimateFigures) -> Iterator[Metric]:
    for name, added in estimate.added_mib.items():
        yield Metric(f"memory/added/{name}_mib", added)
    for name, doubt in estimate.doubts_mib.items():
        yield Metric(f"memory/doubt/{name}_mib", doubt)
    yield Metric(DOUBT, estimate.doubt_mib)
    yield Metric(GROWTH, estimate.growth_mib)
    yield Metric(NEEDED, estimate.needed_mib)
    yield Metric(CAPACITY, estimate.capacity_mib)
    yield Metric(FITS, None if estimate.fits is None else float(estimate.fits))
    yield Metric(SENDING, None if estimate.sending_s is None else ms(estimate.sending_s))
    for phase, predicted in estimate.step.by_phase.items():
        yield Metric(predicted_name(phase), ms(predicted.seconds))
    for name, seconds in zip(PREDICTIONS, estimate.step.time or (), strict=False):
        yield Metric(name, ms(seconds))
    if (bound := estimate.step.bound) is not None:
        yield Metric("predicted/operators", float(bound.operators))
        for what in ("memory", "arithmetic", "host"):
            yield Metric(f"predicted/{what}_pct", 100 * getattr(bound, what))


def _step_counters(counters: StepCounters) -> Iterator[Metric]:
    yield from _counters(counters.step, compares=True)
    for phase, within in counters.phases.items():
        if phase is not None:
            yield from _counters(within, f"{key_of(phase)}/")
    for name, of_class in counters.classes.items():
        for metric in _counters(of_class, f"class/{name}/"):
            yield metric._replace(logged=Logged.NEVER)
    yield Metric("counters/outside_phases_pct", counters.outside_phases_pct)


def _counters(counters: CounterFigures, of: str = "", compares: bool = False) -> Iterator[Metric]:
    """Yield the metrics of a group of kernels. Amounts and rates of a whole step compare; shares do not."""
    yield Metric(f"counters/{of}kernel_ms", counters.kernel_ms, compares)
    if counters.kernel_launches:
        yield Metric(f"counters/{of}kernel_launches", float(counters.kernel_launches), compares)
    for where, traffic in counters.traffic.items():
        yield Metric(f"counters/{of}{where}_mib", traffic.mib, compares)
        yield Metric(f"counters/{of}{where}_gib_per_s", traffic.gib_per_s, compares)
    yield Metric(f"counters/{of}dram_pct_of_peak", counters.dram_pct_of_peak)
    for metric, value in counters.further.items():
        is_share = "pct" in metric or "ratio" in metric  # by Nsight Compute's naming
        yield Metric(f"counters/{of}{metric}", value, compares and not is_share)
    for cache, pct in counters.hit_pct.items():
        yield Metric(f"counters/{of}{cache}_hit_pct", pct)
    yield Metric(f"counters/{of}dram_to_ledger_ratio", counters.dram_to_ledger)


def _verify(found: VerifyResult) -> Iterator[Metric]:
    yield Metric("verify/checks", float(len(found.checks)))
    yield Metric("verify/failed", float(len(having(found.checks, FAIL))))
    yield Metric("verify/warnings", float(len(having(found.checks, WARNING))))
    for check in found.checks:
        yield Metric(f"verify/{check.name}", check.measured)
    yield Metric("verify/noise_deviation_ratio", found.noise_deviation)
    yield Metric("verify/noise_least_chance", least_chance(found))

"""Metric names: the only place where a figure gets the name that MLflow, TensorBoard and tables know it by.

A figure is declared here together with whether its ratio to standard training's means anything. Nothing takes
a name apart again: what is said of a phase or a category is in `Figures`.
"""

from collections.abc import Iterable, Iterator, Mapping

from dpprof.figures.communication import CommunicationFigures
from dpprof.figures.counters import CounterFigures, StepCounters
from dpprof.figures.estimate import EstimateFigures
from dpprof.figures.figures import Figures, Overheads
from dpprof.figures.gradient_verdict import FAIL
from dpprof.figures.ledger import LedgerFigures
from dpprof.figures.memory import MemoryFigures
from dpprof.figures.metric import Logged, Metric
from dpprof.figures.phases import PhaseFigures
from dpprof.figures.privacy import privacy_metrics
from dpprof.figures.ranks import RankFigures, RanksFigures
from dpprof.figures.step import StepFigures
from dpprof.figures.verify_verdict import WARNING, having, least_chance
from dpprof.record.record import GradientCheck, Record
from dpprof.record.verify import VerifyResult
from dpprof.vocabulary.units import mib, ms

PEAK = "memory/peak_allocated_mib"
STEP = "latency/step_ms_median"
IQR = "latency/step_ms_iqr"
SENT, SENDING = "communication/sent_mib", "floor/communication_ms"
EXPOSED, EXPOSED_PCT = "communication/exposed_ms", "communication/exposed_pct"
SAMPLES = "throughput/samples_per_s"
MOVED = "io/total_mib"
FLOPS = "flops/total"
FLOPS_OF_LAYERS, FLOPS_IN_THEORY = "flops/of_layers", "flops/in_theory"
NEEDED = "memory/needed_mib"
CAPACITY = "memory/capacity_mib"
FITS = "memory/fits"
FLOOR = "floor/step_ms"
# The figures of a run that are looked at first.
HEADLINE = (PEAK, STEP, SAMPLES, MOVED, FLOPS, NEEDED, FITS, FLOOR)


def floor_name(phase: str) -> str:
    """What the least time of a phase is called."""
    return f"floor/{phase}_ms"


def ratio_name(name: str) -> str:
    """What the ratio of a figure to standard training's is called."""
    return f"vs_standard/{name}_ratio"


# These ratios mean nothing where a run was disturbed.
RATIOS_OF_TIMES = frozenset({ratio_name(STEP), ratio_name(SAMPLES)})
# The ratios that MLflow gets.
HEADLINE_RATIOS = tuple(ratio_name(name) for name in (PEAK, STEP, SAMPLES, MOVED, FLOPS))


def metrics(named: Iterable[Metric]) -> dict[str, float]:
    """Figures by metric name. What was not measured has no entry."""
    return {metric.name: metric.value for metric in named if metric.value is not None}


def headline_first(figures: Mapping[str, float]) -> dict[str, float]:
    """Figures in the order in which MLflow is to list them."""
    return {name: figures[name] for name in HEADLINE if name in figures} | dict(figures)


def logged(named: Iterable[Metric]) -> dict[str, float]:
    """Those of the figures that MLflow gets, by metric name, the headline first."""
    kept = (m for m in named if m.logged is Logged.ALWAYS or (m.logged is Logged.UNLESS_ZERO and m.value))
    return headline_first(metrics(kept))


def series(record: Record) -> dict[str, list[float]]:
    """Figures that a record holds one by one for each measured step."""
    found = {
        "latency/step_ms": [ms(s) for s in record.step_s],
        "step/samples": [float(n) for n in record.step_samples],
        "memory/step_peak_allocated_mib": [mib(b) for b in record.memory.step_peak],
    }
    return {name: values for name, values in found.items() if values}


def ratios(
    figures: Mapping[str, float], standard: Mapping[str, float], compared: Iterable[str]
) -> dict[str, float]:
    """The ratios of the metrics `compared` to those of the twin with StandardTrainer, if both have them."""
    return {
        ratio_name(name): figures[name] / standard[name]
        for name in compared
        if name in figures and standard.get(name)
    }


def named(figures: Figures) -> Iterator[Metric]:
    """Every figure of a run.

    An estimate's figures have the names of measured ones; where both may meet they go under `estimate/`.
    """
    if figures.step is not None:
        yield from _step(figures.step, figures.phases)
    yield from memory_metrics(figures.memory)
    for category, held in figures.memory.held_mib.items():
        yield Metric("memory", f"held_{category}_mib", held)
    if figures.parameters is not None:
        yield Metric("parameters", "trainable", figures.parameters.trainable)
        yield Metric("parameters", "frozen", figures.parameters.frozen, logged=Logged.UNLESS_ZERO)
    yield from _overheads(figures.overheads)
    if figures.pace is not None:
        yield Metric("pace", "step_ratio", figures.pace.step_ratio)
        yield Metric("pace", "fixed_ms", figures.pace.fixed_ms)
    if figures.ledger is not None:
        yield from _ledger(figures.ledger, figures.phases)
    if figures.communication is not None:
        yield from _communication(figures.communication)
    if figures.ranks is not None and figures.ranks.slowest is not None:
        yield from _ranks(figures.ranks, figures.ranks.slowest)
    if figures.estimate is not None:
        yield from _estimate(figures.estimate)
    for name, of_class in figures.operator_classes.items():
        yield Metric("profiler", f"{name}/self_time_ms", of_class.self_ms)
        yield Metric("profiler", f"{name}/calls", of_class.calls, logged=Logged.NEVER)
        yield Metric("profiler", f"{name}/allocated_mib", of_class.allocated_mib, logged=Logged.NEVER)
    if figures.ceilings is not None:
        yield Metric("ceilings", "copy_gib_per_s", figures.ceilings.copy_gib_per_s)
        yield Metric("ceilings", "matmul_tflop_per_s", figures.ceilings.matmul_tflop_per_s)
    if figures.counters is not None:
        yield from _step_counters(figures.counters)
    if figures.nonfinite_losses is not None:
        yield Metric("loss", "nonfinite", float(figures.nonfinite_losses), logged=Logged.UNLESS_ZERO)
    if figures.privacy is not None:
        yield from privacy_metrics(figures.privacy)
    if figures.gradient_check is not None:
        yield from _gradient_check(figures.gradient_check)
    if figures.verify is not None:
        yield from _verify(figures.verify)


def memory_metrics(memory: MemoryFigures) -> Iterator[Metric]:
    """What the allocator and the operating system tell, of a run or of a failure."""
    yield Metric("memory", "peak_allocated_mib", memory.peak_allocated_mib, compares=True)
    yield Metric("memory", "peak_reserved_mib", memory.peak_reserved_mib, compares=True)
    yield Metric("memory", "first_step_peak_allocated_mib", memory.first_step_peak_mib)
    yield Metric("memory", "after_step_mib", memory.after_step_mib)
    yield Metric("memory", "after_cleanup_mib", memory.after_cleanup_mib)
    yield Metric("memory", "device_used_mib", memory.device_used_mib)
    yield Metric("memory", "peak_rss_mib", memory.peak_rss_mib, compares=True)
    for name, saving in memory.saving_mib.items():
        yield Metric("memory", f"saving_{name}_mib", saving)


def _step(step: StepFigures, phases: Mapping[str, PhaseFigures]) -> Iterator[Metric]:
    yield Metric("latency", "step_ms_median", step.median_ms, compares=True)
    yield Metric("latency", "step_ms_mean", step.mean_ms)
    yield Metric("latency", "step_ms_p95", step.p95_ms)
    yield Metric("latency", "step_ms_iqr", step.iqr_ms)
    for name, phase in phases.items():
        yield Metric("latency", f"{name}_ms", phase.ms)
    yield Metric("step", "largest_batch", step.largest_batch)
    yield Metric("step", "mean_batch", step.mean_batch)
    yield Metric("throughput", "samples_per_s", step.samples_per_s, compares=True)
    yield Metric("throughput", "tokens_per_s", step.tokens_per_s)


def _overheads(overheads: Overheads) -> Iterator[Metric]:
    yield Metric("overhead", "startup_s", overheads.startup_s)
    yield Metric("overhead", "involuntary_switches_per_step", overheads.switches_per_step)
    yield Metric("overhead", "others_processor_pct", overheads.others_processor_pct)
    for name, seconds in overheads.pass_s.items():
        yield Metric("overhead", f"{name}_pass_s", seconds, logged=Logged.NEVER)


def _ledger(ledger: LedgerFigures, phases: Mapping[str, PhaseFigures]) -> Iterator[Metric]:
    yield Metric("ledger", "peak_mib", ledger.peak_mib)
    yield Metric("ledger", "unexplained_pct", ledger.unexplained_pct, logged=Logged.UNLESS_ZERO)
    yield Metric("overhead", "ledger_step_ratio", ledger.slowdown)
    for category, held in ledger.all_at_peak_mib.items():
        yield Metric("memory", f"at_peak/{category}_mib", held, True, Logged.UNLESS_ZERO)
    for name, phase in phases.items():
        yield Metric("memory", f"peak_in_{name}_mib", phase.peak_mib, compares=True)
    for name, phase in phases.items():
        yield Metric("io", f"{name}/read_mib", phase.read_mib, True, Logged.UNLESS_ZERO)
        yield Metric("io", f"{name}/written_mib", phase.written_mib, True, Logged.UNLESS_ZERO)
        yield Metric("flops", name, phase.flops, True, Logged.UNLESS_ZERO)
    yield Metric("io", "total_mib", ledger.moved_mib, compares=True)
    yield Metric("flops", "total", ledger.flops, compares=True)
    if ledger.flops_in_theory is not None:
        yield Metric("flops", "of_layers", ledger.flops_of_layers)
        yield Metric("flops", "in_theory", ledger.flops_in_theory)
    yield Metric("io", "arithmetic_intensity", ledger.intensity, compares=True)


def _communication(found: CommunicationFigures) -> Iterator[Metric]:
    yield Metric("communication", "sent_mib", sum(found.sent_mib.values()), compares=True)
    yield Metric("communication", "calls", float(sum(found.calls.values())), compares=True)
    for phase, sent in found.sent_mib.items():
        yield Metric("communication", f"{phase}/sent_mib", sent)


def _ranks(found: RanksFigures, slowest: RankFigures) -> Iterator[Metric]:
    yield Metric("communication", "exposed_ms", slowest.exposed_ms, compares=True)
    yield Metric("communication", "exposed_pct", found.exposed_pct)
    yield Metric("ranks", "slowest", float(slowest.rank))
    yield Metric("ranks", "alone_step_ms", slowest.alone_ms, compares=True)
    yield Metric("ranks", "imbalance_ratio", found.imbalance)
    yield Metric("ranks", "scaling_efficiency_pct", found.efficiency_pct)
    if found.largest is not None:
        yield Metric("ranks", "largest_peak_mib", found.largest.peak_mib)
        yield Metric("ranks", "largest_peak_rank", float(found.largest.rank))


def _estimate(estimate: EstimateFigures) -> Iterator[Metric]:
    for name, added in estimate.added_mib.items():
        yield Metric("memory", f"added/{name}_mib", added)
    for name, doubt in estimate.doubts_mib.items():
        yield Metric("memory", f"doubt/{name}_mib", doubt)
    yield Metric("memory", "doubt_mib", estimate.doubt_mib)
    yield Metric("memory", "growth_per_step_mib", estimate.growth_mib)
    yield Metric("memory", "needed_mib", estimate.needed_mib)
    yield Metric("memory", "capacity_mib", estimate.capacity_mib)
    yield Metric("memory", "fits", None if estimate.fits is None else float(estimate.fits))
    for phase, seconds in estimate.floor_s.items():
        group, _, key = floor_name(phase).partition("/")
        yield Metric(group, key, ms(seconds))
    for key, least in (("communication", estimate.communication_s), ("step", estimate.step_floor_s)):
        if least is not None:
            yield Metric("floor", f"{key}_ms", ms(least))


def _step_counters(counters: StepCounters) -> Iterator[Metric]:
    yield from _counters(counters.step, compares=True)
    for phase, within in counters.phases.items():
        if phase is not None:
            yield from _counters(within, f"{phase}/")
    for name, of_class in counters.classes.items():
        for metric in _counters(of_class, f"class/{name}/"):
            yield metric._replace(logged=Logged.NEVER)
    yield Metric("counters", "outside_phases_pct", counters.outside_phases_pct)


def _counters(counters: CounterFigures, of: str = "", compares: bool = False) -> Iterator[Metric]:
    """Amounts and rates of a whole step compare; shares do not."""
    yield Metric("counters", f"{of}kernel_ms", counters.kernel_ms, compares)
    yield Metric("counters", f"{of}kernel_launches", float(counters.kernel_launches), compares)
    for where, traffic in counters.traffic.items():
        yield Metric("counters", f"{of}{where}_mib", traffic.mib, compares)
        yield Metric("counters", f"{of}{where}_gib_per_s", traffic.gib_per_s, compares)
    yield Metric("counters", f"{of}dram_pct_of_peak", counters.dram_pct_of_peak)
    for metric, value in counters.further.items():
        is_share = "pct" in metric or "ratio" in metric  # so Nsight Compute calls them
        yield Metric("counters", f"{of}{metric}", value, compares and not is_share)
    for cache, pct in counters.hit_pct.items():
        yield Metric("counters", f"{of}{cache}_hit_pct", pct)
    yield Metric("counters", f"{of}dram_to_ledger_ratio", counters.dram_to_ledger)


def _gradient_check(check: GradientCheck) -> Iterator[Metric]:
    yield Metric("gradient_check", "relative_error_float64", check.relative_error_float64)
    yield Metric("gradient_check", "relative_error_float32", check.relative_error_float32)
    yield Metric("gradient_check", "relative_error_bf16", check.relative_error_bf16)


def _verify(found: VerifyResult) -> Iterator[Metric]:
    yield Metric("verify", "checks", float(len(found.checks)))
    yield Metric("verify", "failed", float(len(having(found.checks, FAIL))))
    yield Metric("verify", "warnings", float(len(having(found.checks, WARNING))))
    for check in found.checks:
        yield Metric("verify", check.name, check.measured)
    yield Metric("verify", "noise_deviation_ratio", found.noise_deviation)
    yield Metric("verify", "noise_least_chance", least_chance(found))

"""One measuring process's answer, as a comparison keeps it, and signs that it was disturbed."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from dpprof.record.figures.capacity import assumptions
from dpprof.record.figures.figures import PhaseFigures
from dpprof.record.figures.names import IQR, MEAN_BATCH, OTHERS_PCT, STEP, SWITCHES
from dpprof.record.figures.results import Result, nonfinite_losses
from dpprof.record.figures.step import LogicalStep
from dpprof.record.record import FailureKind, PrivacyResult
from dpprof.vocabulary.units import mib

# The limits come from 72 clean passes of `tiny` and `small` with three trainers, 16 alone and 56 beside one
# or more busy processes, on a virtual machine with 2 cores (torch with 2 threads, Linux 6.18):
#
# - Beside a busy process others had 0.5 to 1.6 of the processors. Alone it was at most 0.1 in passes of 0.1 s
#   and more, and two ticks of the kernel's clock in shorter ones.
# - Beside a busy process the run was preempted 127 to 550 times a second, alone 0 to 100 times, but for one
#   pass with 142 whose steps took a quarter longer. How often depends on the system's scheduler.
# - Beside a busy process the interquartile range of the steps was 1 % of the median and more: a steady
#   neighbour makes steady steps (800 ms instead of 2). Alone it was 1 to 23 %, but for one pass of 0.05 s. So
#   a narrow range proves nothing; a wide one says that the median is worth little, whatever the reason.
#
# Processors that others may have beyond those that the step leaves free.
_OTHERS_PROCESSORS = 0.25
_SWITCHES_PER_S = 125.0
_RESTLESS_PCT = 25.0
# Shorter times count as this long: a tick (10 ms) or a single switch would weigh too much.
_SHORTEST_S = 0.1


def used_by_others(others_pct: float, processors: int, threads: int, share: float = 1.0) -> str | None:
    """Say what others used of a measurement's processors if that disturbs it, else return None.

    `others_pct` is in percent of one processor; so large a `share` of it counts. The measurement keeps
    `threads` busy: others may have the processors that these leave free, and a little more.
    """
    others = others_pct / 100
    if share * others - max(0, processors - threads) <= _OTHERS_PROCESSORS:
        return None
    return f"other processes used {others:.1f} of {processors or 'the'} processors"


@dataclass(frozen=True)
class MovedBytes:
    """MiB that one operator class reads and writes in one phase of a step (None: between phases)."""

    phase: str | None
    operator_class: str
    mib: float


@dataclass(frozen=True)
class Run:
    """One measuring process's answer. `figures` are by metric name, without those that compare runs.

    `at_peak` is MiB by category. `compared` names the figures whose ratio to standard training's means
    something. `weights_dtype` are the types of the weights in words (empty: not known). `step_s` are the
    timed steps in seconds, `pace` those of the pace pass relative to its fixed computation. `peak_phase` has
    the ledger's peak. `assumptions` are an estimate's; `doubts` are what it cannot follow, with the bytes
    that this may come to (None: unbounded), and `step` what its step is predicted to take.
    """

    name: str
    status: str
    failure: FailureKind | None = None
    reason: str | None = None
    failed_passes: dict[str, str] = field(default_factory=dict)
    skipped_passes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    num_parameters: int | None = None
    weights_dtype: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    phases: dict[str, PhaseFigures] = field(default_factory=dict)
    at_peak: dict[str, float] = field(default_factory=dict)
    compared: list[str] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    pace: list[float] = field(default_factory=list)
    peak_phase: str | None = None
    moved: list[MovedBytes] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    doubts: dict[str, int | None] = field(default_factory=dict)
    step: LogicalStep | None = None
    gradient_check: str | None = None
    gradient_check_reason: str | None = None
    nonfinite_losses: str | None = None
    privacy: PrivacyResult | None = None

    @cached_property
    def disturbances(self) -> list[str]:
        """Reasons why its step times do not compare; empty if it was calm, as far as figures tell."""
        figures, environment, timed_s = self.figures, self.environment, sum(self.step_s)
        if not timed_s:
            return []
        share = min(1.0, timed_s / _SHORTEST_S)
        found = []
        cores = int(environment.get("cpu_cores", 0))
        # A step on a GPU keeps one processor busy with launching kernels.
        threads = 1 if "gpu" in environment else int(environment.get("torch_threads", cores))
        threads *= int(environment.get("ranks_here", 1))
        if used := used_by_others(figures.get(OTHERS_PCT, 0.0), cores, threads, share):
            found.append(used)
        switches = figures.get(SWITCHES, 0.0) * len(self.step_s) / timed_s
        if share * switches > _SWITCHES_PER_S:
            found.append(f"it was preempted {switches:.0f} times a second")
        median, iqr = figures.get(STEP, 0.0), figures.get(IQR, 0.0)
        varies = MEAN_BATCH in figures  # under Poisson sampling steps differ anyway
        if not varies and 100 * iqr > _RESTLESS_PCT * median:
            share_pct = 100 * iqr / median
            found.append(f"the interquartile range of its steps is {share_pct:.0f} % of their median")
        return found

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """Build from a result. Figures of an unfinished clean pass do not count."""
        record, failure, verdict = result.record, result.failure, result.worst_verdict
        run = cls(
            name=result.name,
            status=result.status,
            failure=failure.kind if failure else None,
            reason=failure.message if failure else None,
            num_parameters=record.num_parameters if record else None,
            weights_dtype=result.weights_dtype,
            environment=record.environment if record else {},
            figures=result.metrics,
            compared=[metric.name for metric in result.named if metric.compares and metric.value is not None],
            gradient_check=verdict.word if verdict else None,
            gradient_check_reason=verdict.reason if verdict else None,
        )
        if record is None or result.figures is None:
            return run
        run = replace(
            run,
            failed_passes=record.failed_passes,
            skipped_passes=record.skipped_passes,
            warnings=record.warnings,
            phases=result.figures.phases,
            step_s=record.step_s,
            pace=record.pace.ratios if record.pace else [],
            nonfinite_losses=nonfinite_losses(record) if record.nonfinite_losses else None,
            privacy=record.privacy,
        )
        ledger, of_ledger = record.ledger, result.figures.ledger
        if ledger is None or of_ledger is None:
            return run
        moved = ledger.moved(by=lambda row: (row.phase, row.operator_class))
        return replace(
            run,
            at_peak=of_ledger.all_at_peak_mib,
            peak_phase=ledger.peak_phase,
            moved=[MovedBytes(*key, mib(each.num_bytes)) for key, each in moved.items()],
            assumptions=assumptions(result.config, ledger) if result.config.is_estimate else [],
            doubts={doubt.text: doubt.num_bytes for doubt in ledger.doubts},
            step=result.step,
        )

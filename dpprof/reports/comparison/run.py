"""One measuring process's answer, as a comparison keeps it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import assumptions
from dpprof.figures.figures import Figures
from dpprof.figures.phases import PhaseFigures
from dpprof.figures.results import Result, nonfinite_losses
from dpprof.record.ledger import LedgerResult
from dpprof.record.privacy import PrivacyResult
from dpprof.record.record import Record
from dpprof.reports.comparison.calm import disturbances
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class MovedBytes:
    """MiB that one operator class reads and writes in one phase of a step (None: between phases)."""

    phase: str | None
    operator_class: str
    mib: float


@dataclass(frozen=True)
class Run:
    """One measuring process's answer. `figures` go by metric name, without those that compare runs.

    `phases` and `at_peak` (MiB by category) hold what is said of each phase and category, `compared` the
    names of those figures whose ratio to standard training's means something. `step_s` are the timed steps in
    seconds, `pace` those of the pace pass in times its fixed computation; `peak_phase` is the phase in which
    the ledger's peak lies; `assumptions` are what an estimate rests on, `doubts` what it cannot follow, in
    words, with the bytes that this may come to (None: unbounded). `gradient_check` is its verdict;
    `nonfinite_losses` says how many there are, if any; `privacy` is the guarantee, if it was asked for.
    """

    name: str
    status: str
    failure: str | None = None
    reason: str | None = None
    failed_passes: dict[str, str] = field(default_factory=dict)
    skipped_passes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    num_parameters: int | None = None
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
    gradient_check: str | None = None
    gradient_check_reason: str | None = None
    nonfinite_losses: str | None = None
    privacy: PrivacyResult | None = None

    @cached_property
    def disturbances(self) -> list[str]:
        """Why its step times do not compare (`calm.py`); empty if it was timed in peace."""
        return disturbances(self.figures, self.step_s, self.environment)

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """What a comparison needs of a result. Figures of an unfinished clean pass do not count."""
        record, failure, verdict = result.record, result.failure, result.worst_verdict
        of_record: dict[str, Any] = {}
        if record is not None and result.figures is not None:
            of_record = _of_record(result.config, record, result.figures)
        return cls(
            name=result.name,
            status=result.status,
            failure=failure.kind if failure else None,
            reason=failure.message if failure else None,
            num_parameters=record.num_parameters if record else None,
            environment=record.environment if record else {},
            figures=result.metrics,
            compared=[metric.name for metric in result.named if metric.compares and metric.value is not None],
            gradient_check=verdict.word if verdict else None,
            gradient_check_reason=verdict.reason if verdict else None,
            **of_record,
        )


def _of_record(config: ExperimentConfig, record: Record, figures: Figures) -> dict[str, Any]:
    """The fields of a run that come from a record whose first pass finished."""
    ledger = record.ledger
    return {
        "failed_passes": record.failed_passes,
        "skipped_passes": record.skipped_passes,
        "warnings": record.warnings,
        "phases": figures.phases,
        "at_peak": figures.ledger.all_at_peak_mib if figures.ledger else {},
        "step_s": record.step_s,
        "pace": record.pace.ratios if record.pace else [],
        "peak_phase": ledger.peak_phase if ledger else None,
        "moved": _moved(ledger) if ledger else [],
        "assumptions": assumptions(config, ledger) if ledger and config.is_estimate else [],
        "doubts": {doubt.text: doubt.num_bytes for doubt in ledger.doubts} if ledger else {},
        "nonfinite_losses": nonfinite_losses(record) if record.nonfinite_losses else None,
        "privacy": record.privacy,
    }


def _moved(ledger: LedgerResult) -> list[MovedBytes]:
    moved = ledger.moved(by=lambda row: (row.phase, row.operator_class))
    return [MovedBytes(*key, mib(each.num_bytes)) for key, each in moved.items()]

"""Everything that a record says, as typed figures: what `names.py` gives metric names to."""

import statistics
from dataclasses import dataclass
from typing import Self

from dpprof.figures.communication import CommunicationFigures
from dpprof.figures.counters import StepCounters
from dpprof.figures.estimate import EstimateFigures
from dpprof.figures.ledger import LedgerFigures
from dpprof.figures.memory import MemoryFigures
from dpprof.figures.operator_classes import OperatorClassFigures, operator_class_figures
from dpprof.figures.phases import PhaseFigures, phase_figures
from dpprof.figures.ranks import RanksFigures
from dpprof.figures.step import StepFigures
from dpprof.record.privacy import PrivacyResult
from dpprof.record.record import Ceilings, GradientCheck, Pace, ParameterGroup, Record
from dpprof.record.verify import VerifyResult
from dpprof.vocabulary.units import gib, ms


@dataclass(frozen=True)
class Overheads:
    """What measuring cost beside the timed steps, and how much of the machine others used meanwhile."""

    startup_s: float | None
    switches_per_step: float | None
    others_processor_pct: float | None
    pass_s: dict[str, float]

    @classmethod
    def of(cls, record: Record) -> Self:
        """The figures of a record."""
        switches, others = record.involuntary_switches, record.others_processor_s
        return cls(
            startup_s=record.startup_s,
            switches_per_step=switches / len(record.step_s)
            if switches is not None and record.step_s
            else None,
            others_processor_pct=100 * others / record.timed_s
            if others is not None and record.timed_s
            else None,
            pass_s={
                name: outcome.seconds
                for name, outcome in record.passes.items()
                if outcome.seconds is not None and outcome.status != "skipped"
            },
        )


@dataclass(frozen=True)
class PaceFigures:
    """The pace pass: the step relative to the fixed computation beside it, and how long that takes."""

    step_ratio: float
    fixed_ms: float

    @classmethod
    def of(cls, pace: Pace | None) -> Self | None:
        """The figures of a pace pass, if it timed any step."""
        if pace is None or not pace.step_s:
            return None
        return cls(statistics.median(pace.ratios), ms(statistics.median(pace.fixed_s)))


@dataclass(frozen=True)
class ParameterFigures:
    """How many numbers of the model train, and how many are frozen."""

    trainable: int
    frozen: int

    @classmethod
    def of(cls, groups: list[ParameterGroup]) -> Self | None:
        """The figures of a record's groups, if it has any."""
        if not groups:
            return None
        trainable = sum(group.numbers for group in groups if group.trains)
        return cls(trainable, sum(group.numbers for group in groups) - trainable)


@dataclass(frozen=True)
class CeilingFigures:
    """What the machine reaches at best."""

    copy_gib_per_s: float
    matmul_tflop_per_s: float

    @classmethod
    def of(cls, ceilings: Ceilings | None) -> Self | None:
        """The figures of a ceilings pass, if there was one."""
        if ceilings is None:
            return None
        return cls(gib(ceilings.copy_bytes_per_s), ceilings.matmul_flop_per_s / 1e12)


@dataclass(frozen=True)
class Figures:
    """The figures of one run. A part that was not measured is None or empty."""

    step: StepFigures | None
    memory: MemoryFigures
    phases: dict[str, PhaseFigures]
    overheads: Overheads
    parameters: ParameterFigures | None
    pace: PaceFigures | None
    ledger: LedgerFigures | None
    communication: CommunicationFigures | None
    ranks: RanksFigures | None
    estimate: EstimateFigures | None
    operator_classes: dict[str, OperatorClassFigures]
    ceilings: CeilingFigures | None
    counters: StepCounters | None
    nonfinite_losses: int | None
    privacy: PrivacyResult | None
    gradient_check: GradientCheck | None
    verify: VerifyResult | None

    @classmethod
    def of(cls, record: Record) -> Self:
        """The figures of a record."""
        ledger = record.ledger
        counters = StepCounters.of(record.counters, ledger) if record.counters else None
        return cls(
            step=StepFigures.of(record),
            memory=MemoryFigures.of(record.memory, record.held),
            phases=phase_figures(record, counters.phases if counters else {}),
            overheads=Overheads.of(record),
            parameters=ParameterFigures.of(record.parameters),
            pace=PaceFigures.of(record.pace),
            ledger=LedgerFigures.of(record, ledger) if ledger else None,
            communication=CommunicationFigures.of(record, ledger) if ledger else None,
            ranks=RanksFigures.of(record),
            estimate=EstimateFigures.of(record, ledger) if ledger and record.is_estimate else None,
            operator_classes=operator_class_figures(record),
            ceilings=CeilingFigures.of(record.ceilings),
            counters=counters,
            nonfinite_losses=record.nonfinite_losses,
            privacy=record.privacy,
            gradient_check=record.gradient_check,
            verify=record.verify,
        )

"""Results of experiments that never ran, with figures that can be checked by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dpprof.config.estimating import ESTIMATE
from dpprof.config.flat import from_flat, to_flat
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.pages.run_reports import write_run_reports
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import LedgerResult, PhasePeak, TrafficRow
from dpprof.record.record import (
    Failure,
    GradientCheck,
    Memory,
    ParameterGroup,
    PassOutcome,
    PassStatus,
    Record,
    VerifyResult,
)

MIB = 2**20
FINISHED = {"clean": PassOutcome(PassStatus.FINISHED)}


def result(
    trainer: str = "StandardTrainer",
    *,
    step_s: float | Sequence[float] = 0.0,
    peak_mib: float | None = None,
    at_peak: Mapping[str, float] | None = None,
    phase_ms: Mapping[str, float] | None = None,
    peak_in: Mapping[str, float] | None = None,
    moved: Sequence[tuple[str, str, float]] = (),
    environment: Mapping[str, str] | None = None,
    others_processors: float | None = None,
    outcomes: dict[str, PassOutcome] = FINISHED,
    failure: Failure | None = None,
    check: GradientCheck | None = None,
    verified: VerifyResult | None = None,
    weights: Mapping[str, int] | None = None,
    name: str | None = None,
    **settings: object,
) -> Result:
    """An experiment with the given steps (one number: two equal steps), or without a record if it is 0.

    `at_peak` gives MiB by category, `peak_in` by phase, `moved` MiB read by phase and operator class: any of
    them makes a ledger. `others_processors` is how many processors others had during the steps,
    `weights` the numbers of parameters by their type.
    """
    is_for_cuda = settings.get("device", "auto" if settings.get("passes") == ESTIMATE else "cpu") != "cpu"
    size = {} if is_for_cuda else {"model_size": "tiny"}
    config = from_flat({"trainer": trainer, **size, **settings}).resolve(cuda_available=False)
    record = None
    if step_s:
        peak = None if peak_mib is None else round(peak_mib * MIB)
        steps = [float(step_s)] * 2 if isinstance(step_s, int | float) else list(step_s)
        record = Record(
            to_flat(config),
            dict(environment or {}),
            passes=outcomes,
            num_parameters=1_230_000,
            samples_per_step=config.batch_size * config.accumulation_steps,
            step_s=steps,
            timed_s=sum(steps),
            others_processor_s=None if others_processors is None else others_processors * sum(steps),
            phase_s={phase: [ms / 1e3] * len(steps) for phase, ms in (phase_ms or {}).items()},
            memory=Memory(peak_allocated=peak),
            gradient_check=check,
            verify=verified,
            parameters=groups_of(weights or {}),
            ledger=ledger(at_peak or {}, peak_in or {}, moved) if at_peak or peak_in or moved else None,
        )
    label = name or config.run_name
    return Result(label, RunFolder(Path(label)), config, record, failure)


def groups_of(weights: Mapping[str, int]) -> list[ParameterGroup]:
    """A tensor of each type, with so many numbers."""
    return [
        ParameterGroup("w", 1, number, trains=True, per_sample=False, dtype=dtype)
        for dtype, number in weights.items()
    ]


def ledger(
    at_peak: Mapping[str, float], peak_in: Mapping[str, float], moved: Sequence[tuple[str, str, float]]
) -> LedgerResult:
    held = {category: round(mib * MIB) for category, mib in at_peak.items()}
    peak = sum(held.values())
    phases = {phase: round(mib * MIB) for phase, mib in peak_in.items()}
    phases = phases or dict.fromkeys([*(phase for phase, _, _ in moved), "backward"], peak)
    return LedgerResult(
        peak=max(peak, *phases.values()),
        peak_phase=max(phases, key=lambda phase: phases[phase]) if peak_in else "backward",
        at_peak=held,
        phase_peak={phase: PhasePeak(num_bytes, held) for phase, num_bytes in phases.items()},
        after_step={},
        traffic=[
            TrafficRow("aten::x", operator_class, phase, 1, round(mib * MIB), 0, 0)
            for phase, operator_class, mib in moved
        ],
        step_s=0.1,
        num_storages=1,
    )


def comparison(*results: Result) -> Comparison:
    """The results as one sweep named `s`."""
    return compare("s", {"s": results})


def rendered(folder: RunFolder) -> Result:
    """The result of a run folder whose pages are up to date."""
    found = read_result(folder)
    write_run_reports(found)
    return found

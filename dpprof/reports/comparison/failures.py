"""What failed in a comparison, in words."""

from dataclasses import dataclass

from dpprof.figures.gradient_verdict import FAIL
from dpprof.reports.comparison.comparison import Comparison, runs_that_failed
from dpprof.reports.comparison.run import Run

_LONGEST = 300


@dataclass(frozen=True)
class FailedRun:
    """A run that failed, or a later pass or the gradient check of which did: what it was, and why."""

    name: str
    failure: str
    reason: str


def failed_runs(comparison: Comparison) -> list[FailedRun]:
    """Every one, in order."""
    return [FailedRun(run.name, _failure(run), reason(run)) for _, run in runs_that_failed(comparison)]


def _failure(run: Run) -> str:
    """What of a run failed: its kind of failure, a pass, or the gradient check."""
    return run.failure or ("later pass" if run.failed_passes else "gradient check")


def reason(run: Run) -> str:
    """Why a run failed, or a pass of it, in one line."""
    reasons = [run.reason] if run.reason else []
    reasons += [f"{name} pass: {why}" for name, why in run.failed_passes.items()]
    if run.gradient_check == FAIL:
        reasons.append(f"gradient check: {run.gradient_check_reason}")
    first_lines = [why.strip().splitlines()[0] if why.strip() else "" for why in reasons]
    return "; ".join(first_lines)[:_LONGEST]

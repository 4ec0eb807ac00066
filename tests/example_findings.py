"""Comparisons to find something in, and what of one kind was found."""

from collections.abc import Sequence
from typing import TypeVar

from example_results import result

from dpprof.figures.results import Result
from dpprof.record.record import Failure
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.findings.verdict import verdict

STANDARD = "StandardTrainer"
FLAT, GHOST, FAST = "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer"
OOM = Failure("oom", "no memory")
# A run during which others had one of the two processors.
BUSY = {"environment": {"cpu_cores": "2", "torch_threads": "2"}, "others_processors": 1.0}
HERE = "tiny, batch 4, sequence 512"
T = TypeVar("T")


def steps(around: float, spread: float = 0.01) -> list[float]:
    return [around * (1 + spread * k) for k in (-2, -1, -1, 0, 0, 0, 1, 1, 2)]


def run(trainer: str, step_s: float | Sequence[float], peak_mib: float, **more: object) -> Result:
    """An experiment with nine steps around one time, or with the steps given."""
    around = steps(step_s) if isinstance(step_s, float) else list(step_s)
    return result(trainer, step_s=around, peak_mib=peak_mib, **more)  # type: ignore[arg-type]


def found(comparison: Comparison, kind: type[T]) -> list[T]:
    """The data of the findings of one kind."""
    return [finding.data for finding in verdict(comparison) if isinstance(finding.data, kind)]


def findings(comparison: Comparison, kind: type[T]) -> list[Finding[T]]:
    """The findings of one kind."""
    return [finding for finding in verdict(comparison) if isinstance(finding.data, kind)]  # type: ignore[misc]

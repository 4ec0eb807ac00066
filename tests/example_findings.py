"""Comparisons to find something in, and what was found."""

from collections.abc import Sequence

from example_results import result

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.verdict import verdict
from dpprof.record.figures.results import Result
from dpprof.record.record import Failure, FailureKind

STANDARD = "StandardTrainer"
FLAT, GHOST, FAST = "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer"
OOM = Failure(FailureKind.OOM, "no memory")
# A run during which others had one of the two processors.
BUSY = {"environment": {"cpu_cores": "2", "torch_threads": "2"}, "others_processors": 1.0}
HERE = "tiny, batch 4, sequence 512"


def steps(around: float, spread: float = 0.01) -> list[float]:
    return [around * (1 + spread * k) for k in (-2, -1, -1, 0, 0, 0, 1, 1, 2)]


def run(trainer: str, step_s: float | Sequence[float], peak_mib: float, **more: object) -> Result:
    """An experiment with nine steps around one time, or with the steps given."""
    around = steps(step_s) if isinstance(step_s, float) else list(step_s)
    return result(trainer, step_s=around, peak_mib=peak_mib, **more)  # type: ignore[arg-type]


def findings(comparison: Comparison, topic: str) -> list[Finding]:
    """The findings on a topic."""
    return [finding for finding in verdict(comparison) if finding.topic == topic]


def told(comparison: Comparison, topic: str) -> str:
    """What the only finding on a topic says, with its points; empty without one."""
    found = findings(comparison, topic)
    assert len(found) < 2
    return "\n".join([found[0].text, *map(str, found[0].points)]) if found else ""

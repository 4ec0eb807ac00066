"""How long a training step takes, and its throughput."""

import statistics
from dataclasses import dataclass
from typing import Self

from dpprof.record.record import Record
from dpprof.vocabulary.units import ms


@dataclass(frozen=True)
class StepFigures:
    """Latency and throughput of the timed steps. One step alone has no spread.

    `largest_batch` and `mean_batch` are there where batches vary (Poisson sampling).
    """

    median_ms: float
    mean_ms: float
    p95_ms: float | None
    iqr_ms: float | None
    largest_batch: int | None
    mean_batch: float | None
    samples_per_s: float | None
    tokens_per_s: float | None

    @classmethod
    def of(cls, record: Record) -> Self | None:
        """The figures of a record; None if no step was timed."""
        steps, samples = record.step_s, record.step_samples
        if not steps:
            return None
        cuts = statistics.quantiles(steps, n=20, method="inclusive") if len(steps) > 1 else None
        per_s = _steps_per_s(record)
        return cls(
            median_ms=ms(statistics.median(steps)),
            mean_ms=ms(statistics.fmean(steps)),
            p95_ms=ms(cuts[18]) if cuts else None,
            iqr_ms=ms(cuts[14] - cuts[4]) if cuts else None,
            largest_batch=max(samples) if samples else None,
            mean_batch=statistics.fmean(samples) if samples else None,
            samples_per_s=None if record.samples_per_step is None else record.samples_per_step * per_s,
            tokens_per_s=None if record.tokens_per_step is None else record.tokens_per_step * per_s,
        )


def _steps_per_s(record: Record) -> float:
    """Steps of the usual size in a second. Where batches vary, all samples count, over all the time."""
    if record.step_samples and record.samples_per_step:
        return sum(record.step_samples) / record.samples_per_step / sum(record.step_s)
    return 1 / statistics.median(record.step_s)

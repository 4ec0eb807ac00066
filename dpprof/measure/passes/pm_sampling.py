"""The pm_sampling pass: DRAM bytes of one step, sampled by the GPU while it runs at full speed.

NVIDIA's PM sampling (CUPTI) reads the counters of the whole GPU every tenth of a millisecond and replays no
kernel, as Nsight Compute does. The sampler is torch's, from 2.14 on: `torch.profiler._cupti.pm_sampling`,
which needs the package cupti-python. Other programs on the GPU are counted too. Every phase waits for its
kernels, so that samples can be told apart. Not tried on a GPU yet (November 2026).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from dpprof.config.counter_metrics import DRAM_READ, DRAM_WRITTEN
from dpprof.errors import CountersUnavailable
from dpprof.measure.observe import Observer
from dpprof.measure.passes.subject import Subject
from dpprof.record.counters import SAMPLED, CounterResult, CounterRow

METRICS = (DRAM_READ, DRAM_WRITTEN)
_INTERVAL_MS, _LONGEST_MS = 0.1, 20_000


class Span(NamedTuple):
    """A phase, or the rest of a step (None), from `start` to `end` in nanoseconds of CUPTI's clock."""

    phase: str | None
    start: int
    end: int


def run(subject: Subject) -> None:
    """Sample one step after warm-up. Raises CountersUnavailable where nothing can be sampled."""
    with _torchs_sampler(subject.config.device) as sampler:
        training = subject.build()
        training.run(subject.config.measuring.warmup_steps, Observer())
        sampler.poll()  # those of the warm-up
        observer = _Spans(sampler)
        training.run(1, observer)
        frame = sampler.poll()
    if not frame:
        raise CountersUnavailable("PM sampling gave no samples: torch's log says why")
    subject.record.counters = counted(frame, observer.spans)


def counted(frame: dict[str, Any], spans: Sequence[Span]) -> CounterResult:
    """Divide samples among spans: one that lies in several by time. The last span is the whole step."""
    starts = [int(start) for start in frame["start_ns"]]
    ends = [*starts[1:], starts[-1] + round(1e6 * _INTERVAL_MS)]
    *phases, step = spans
    rows = [_row(span, frame, starts, ends) for span in phases]
    rest = _row(step, frame, starts, ends)
    rest.seconds -= math.fsum(row.seconds for row in rows)
    rest.values = {m: v - math.fsum(row.values[m] for row in rows) for m, v in rest.values.items()}
    settings = {"source": f"PM sampling, torch {torch.__version__}", "interval_ms": f"{_INTERVAL_MS:g}"}
    return CounterResult([*rows, rest], settings)


def _row(span: Span, frame: dict[str, Any], starts: Iterable[int], ends: Iterable[int]) -> CounterRow:
    shares = [
        max(0, min(end, span.end) - max(start, span.start)) / max(1, end - start)
        for start, end in zip(starts, ends, strict=True)
    ]
    values = {
        metric: math.fsum(share * float(value) for share, value in zip(shares, frame[metric], strict=True))
        for metric in METRICS
    }
    return CounterRow(SAMPLED, SAMPLED, span.phase, 0, (span.end - span.start) / 1e9, values)


class _Spans(Observer):
    """Notes the spans of the phases, and last that of the step."""

    def __init__(self, sampler: Any) -> None:
        self.spans: list[Span] = []
        self._now = sampler.now

    def step(self) -> AbstractContextManager[None]:
        return self.phase(None)

    @contextmanager
    def phase(self, name: str | None) -> Iterator[None]:
        start = self._now()
        yield
        self.spans.append(Span(name, start, self._now()))


@contextmanager
def _torchs_sampler(device: str) -> Iterator[Any]:
    """Sample with torch's sampler: `poll()` gives samples, and `now()` the time of its clock.

    Raises CountersUnavailable where there is none.
    """
    if device != "cuda":
        raise CountersUnavailable("PM sampling reads the counters of a GPU, and this runs on the CPU")
    try:
        cupti = import_module("cupti.cupti")
        sampler = import_module("torch.profiler._cupti.pm_sampling").PmSampler
    except ImportError as error:
        raise CountersUnavailable(
            f"PM sampling needs torch 2.14 or newer and the package cupti-python ({error})"
        ) from None
    sampler.configure(sampling_interval_ms=_INTERVAL_MS, lookback_window_ms=_LONGEST_MS)
    try:
        handle = sampler().add_consumer(METRICS)
    except Exception as error:
        raise CountersUnavailable(f"PM sampling cannot start: {error}") from error

    def now() -> int:
        torch.cuda.synchronize()
        return int(cupti.get_timestamp())

    try:
        yield SimpleNamespace(poll=handle.poll, now=now)
    finally:
        handle.detach()

"""The clean pass: warm-up, then timed steps with nothing attached.

Step latency, latency per phase and, on CUDA, the headline peak memory come from this pass alone. Before and
after all that it looks whether the weights moved that should.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dpprof.measure.observe import Observer, Subject
from dpprof.measure.passes.losses import KeptLosses
from dpprof.measure.passes.weights import Weights
from dpprof.process import involuntary_switches, others_processor_s, peak_rss_bytes, process_age_s
from dpprof.record.record import Record


def run(subject: Subject) -> None:
    """Time `measured_steps` steps after `warmup_steps` and put the figures into the record."""
    config, record = subject.config, subject.record
    on_cuda = config.device == "cuda"
    training = subject.build(is_timed=True)
    first = _PeakMemory() if on_cuda else Observer()
    record.startup_s = process_age_s()
    weights = Weights(training.model)
    training.run(1, first)
    training.run(config.measuring.warmup_steps - 1, Observer())
    gc.collect()
    _synchronise(on_cuda)

    peaks = _PeakMemory() if on_cuda else None
    stopwatch = Stopwatch(on_cuda=on_cuda, inner=peaks)
    neighbours = _Neighbours()
    training.run(config.measuring.measured_steps, stopwatch)
    _synchronise(on_cuda)
    neighbours.note(record)
    record.step_s, record.phase_s = stopwatch.results()
    if config.poisson_sampling:
        record.step_samples = training.num_samples[-config.measuring.measured_steps :]
    record.nonfinite_losses = stopwatch.kept.count_nonfinite()

    record.held = {
        category: sum({s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for _, t in tensors)}.values())
        for category, tensors in training.held_tensors().items()
    }
    memory = record.memory
    if isinstance(first, _PeakMemory) and peaks is not None:
        memory.first_step_peak = first.allocated[0]
        memory.step_peak = peaks.allocated
        memory.peak_allocated = max(peaks.allocated)
        memory.peak_reserved = max(peaks.reserved)
        memory.after_step = torch.cuda.memory_allocated()
        free, total = torch.cuda.mem_get_info()
        memory.device_used = total - free
    memory.peak_rss = peak_rss_bytes()
    weights.hold_to_account(training, config, record)
    if on_cuda:
        training.drop_gradients()
        gc.collect()
        torch.cuda.empty_cache()
        memory.after_cleanup = torch.cuda.memory_allocated()


def _synchronise(on_cuda: bool) -> None:
    if on_cuda:
        torch.cuda.synchronize()


class _Neighbours:
    """What other processes do during the timed steps: read before and after them, never in between."""

    def __init__(self) -> None:
        self._others_s = others_processor_s()
        self._switches = involuntary_switches()
        self._began = time.perf_counter()

    def note(self, record: Record) -> None:
        """Put what has happened since the start into the record."""
        record.timed_s = time.perf_counter() - self._began
        record.involuntary_switches = involuntary_switches() - self._switches
        others_s = others_processor_s()
        if others_s is not None and self._others_s is not None:
            # It is counted in ticks: a difference close to zero may come out negative.
            record.others_processor_s = max(0.0, others_s - self._others_s)


class _HostClock:
    """Reads the host's clock: right on a device where operators run as they are called."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        return end - start


class _CudaClock:
    """Records events in the stream, so that nothing waits; they are read after a synchronisation."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3


class _PeakMemory(Observer):
    """Peak bytes of each step, allocated and reserved, from the CUDA allocator's statistics.

    The allocator counts on the host, so no synchronisation is needed.
    """

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.reserved: list[int] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        torch.cuda.reset_peak_memory_stats()
        yield
        self.allocated.append(torch.cuda.max_memory_allocated())
        self.reserved.append(torch.cuda.max_memory_reserved())


class Stopwatch(Observer):
    """Reads the clock around steps and phases; the differences are taken after the last step.

    `kept` are the losses of the steps, which are also read only afterwards.
    """

    def __init__(self, *, on_cuda: bool, inner: Observer | None = None) -> None:
        self._clock: Any = _CudaClock() if on_cuda else _HostClock()
        self._inner = inner or Observer()
        self.kept = KeptLosses()
        self._steps: list[tuple[Any, Any]] = []
        self._phases: dict[str, dict[int, list[tuple[Any, Any]]]] = defaultdict(lambda: defaultdict(list))

    @contextmanager
    def step(self) -> Iterator[None]:
        """Reads the clock at the start and the end of a step."""
        with self._inner.step():
            start = self._clock.mark()
            yield
            self._steps.append((start, self._clock.mark()))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Reads the clock at the start and the end of a phase."""
        start = self._clock.mark()
        yield
        self._phases[name][len(self._steps)].append((start, self._clock.mark()))

    def losses(self, losses: torch.Tensor) -> None:
        """Keeps the losses of a physical batch."""
        self.kept.losses(losses)

    def results(self) -> tuple[list[float], dict[str, list[float]]]:
        """Seconds of each step, and of each phase in each step (its occurrences summed)."""
        steps = [self._clock.seconds(*marks) for marks in self._steps]
        phases = {
            name: [sum(self._clock.seconds(*marks) for marks in occurrences) for occurrences in each.values()]
            for name, each in self._phases.items()
        }
        return steps, phases

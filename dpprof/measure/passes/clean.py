"""The clean pass: timed steps with nothing attached; and the alone pass: one rank by itself.

Step latency, latency per phase and, on CUDA, the headline peak memory come from the clean pass alone. It also
checks that the right weights moved.

The alone pass trains on a process group that communicates with nobody (`measure/silent_group.py`). The time
by which the clean pass's steps are longer is communication that no computation hides.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dpprof.measure.observe import Observer
from dpprof.measure.passes.subject import Subject
from dpprof.measure.passes.weights import checksums, hold_to_account
from dpprof.process import involuntary_switches, others_processor_s, peak_rss_bytes, process_age_s
from dpprof.record.record import Memory, Record


def run(subject: Subject) -> None:
    """Time `measured_steps` steps after `warmup_steps` and put the figures into the record."""
    config, record = subject.config, subject.record
    on_cuda = config.device == "cuda"
    training = subject.build(is_timed=True)
    first = PeakMemory() if on_cuda else Observer()
    record.startup_s = process_age_s()
    weights = checksums(training.model)
    training.run(1, first)
    training.run(config.measuring.warmup_steps - 1, Observer())
    peaks = PeakMemory() if on_cuda else Observer()
    with timing(record, peaks, on_cuda=on_cuda) as stopwatch:
        training.run(config.measuring.measured_steps, stopwatch)
    if config.poisson_sampling:
        record.step_samples = training.num_samples[-config.measuring.measured_steps :]
    record.nonfinite_losses = stopwatch.count_nonfinite()

    record.held = {
        category: sum({s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for _, t in tensors)}.values())
        for category, tensors in training.held_tensors().items()
    }
    memory = record.memory
    if isinstance(first, PeakMemory) and isinstance(peaks, PeakMemory):
        memory.first_step_peak = first.allocated[0]
        peaks.note(memory)
    memory.peak_rss = peak_rss_bytes()
    hold_to_account(weights, training, config, record)
    if on_cuda:
        training.trainer.drop_gradients()
        gc.collect()
        torch.cuda.empty_cache()
        memory.after_cleanup = torch.cuda.memory_allocated()


def run_alone(subject: Subject) -> None:
    """Time the steps of one rank without communication."""
    training = subject.build(is_timed=True)
    how = subject.config.measuring
    training.run(how.warmup_steps, Observer())
    alone = Record(subject.record.config, {})
    with timing(alone, Observer(), on_cuda=subject.config.device == "cuda") as stopwatch:
        training.run(how.measured_steps, stopwatch)
    subject.record.alone_step_s = alone.step_s


@contextmanager
def timing(record: Record, inner: Observer, *, on_cuda: bool) -> "Iterator[Stopwatch]":
    """Time the steps done inside, after all that was begun before and until all of them is done.

    Load by other processes is read before and after the steps but never in between.
    """
    gc.collect()
    _synchronise(on_cuda)
    stopwatch = Stopwatch(on_cuda=on_cuda, inner=inner)
    others_before_s, switches = others_processor_s(), involuntary_switches()
    began = time.perf_counter()
    yield stopwatch
    _synchronise(on_cuda)
    record.timed_s = time.perf_counter() - began
    record.involuntary_switches = involuntary_switches() - switches
    others_s = others_processor_s()
    if others_s is not None and others_before_s is not None:
        # It is counted in ticks: a difference close to zero may come out negative.
        record.others_processor_s = max(0.0, others_s - others_before_s)
    record.step_s, record.phase_s = stopwatch.results()


def _synchronise(on_cuda: bool) -> None:
    if on_cuda:
        torch.cuda.synchronize()


class PeakMemory(Observer):
    """Peak bytes of each step, from the CUDA allocator, which counts on the host without synchronisation."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.reserved: list[int] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Take a step's peaks."""
        torch.cuda.reset_peak_memory_stats()
        yield
        self.allocated.append(torch.cuda.max_memory_allocated())
        self.reserved.append(torch.cuda.max_memory_reserved())

    def note(self, memory: Memory) -> None:
        """Put the peaks, and what is held now, into a record."""
        memory.step_peak = self.allocated
        memory.peak_allocated = max(self.allocated)
        memory.peak_reserved = max(self.reserved)
        memory.after_step = torch.cuda.memory_allocated()
        free, total = torch.cuda.mem_get_info()
        memory.device_used = total - free


class KeptLosses(Observer):
    """Keeps every loss that the trainer computes; waits for the device only when they are read."""

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []

    def losses(self, losses: torch.Tensor) -> None:
        """Keep one physical batch's losses, without their graph and the rest of their storage."""
        losses = losses.detach()
        is_part = losses.untyped_storage().nbytes() > losses.nbytes
        self._losses.append(losses.clone() if is_part else losses)

    def count_nonfinite(self) -> int:
        """Count the losses that are NaN or infinite, then forget them. Waits for the device."""
        kept, self._losses = self._losses, []
        return sum(int((~torch.isfinite(losses)).sum()) for losses in kept)


class Stopwatch(KeptLosses):
    """Times steps and phases, and keeps the losses. Everything is read after the last step only."""

    def __init__(self, *, on_cuda: bool, inner: Observer | None = None) -> None:
        super().__init__()
        self._on_cuda = on_cuda
        self._inner = inner or Observer()
        self._steps: list[tuple[Any, Any]] = []
        self._phases: dict[str, dict[int, list[tuple[Any, Any]]]] = defaultdict(lambda: defaultdict(list))

    def _mark(self) -> Any:
        """Mark this moment: by the host's clock, or on CUDA by an event in the stream, so nothing waits."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3 if self._on_cuda else end - start

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time a step."""
        with self._inner.step():
            start = self._mark()
            yield
            self._steps.append((start, self._mark()))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        start = self._mark()
        yield
        self._phases[name][len(self._steps)].append((start, self._mark()))

    def results(self) -> tuple[list[float], dict[str, list[float]]]:
        """Return the seconds of each step, and of each phase in each step (its occurrences summed)."""
        steps = [self._seconds(*marks) for marks in self._steps]
        phases = {
            name: [sum(self._seconds(*marks) for marks in occurrences) for occurrences in each.values()]
            for name, each in self._phases.items()
        }
        return steps, phases

"""The passes over a loop's steps: timing, ledger, allocator's events, trace."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple
from weakref import ref

from torch import Tensor, UntypedStorage, nn
from torch.profiler import ProfilerActivity, profile

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.guard import Guard
from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.findings import LoopFindings
from dpprof.measure.own_loop.followed import OPACUS, Followed
from dpprof.measure.own_loop.ledger import BesideCompiled, FromSecondStep, LoopLedger, num_compiled
from dpprof.measure.own_loop.present import tensors_alive
from dpprof.measure.own_loop.profilers import Profilers
from dpprof.measure.own_loop.quiet import Quiet
from dpprof.measure.passes import clean, trace
from dpprof.measure.passes.events import Allocation, Recording, own_allocations, read
from dpprof.measure.passes.memory import AllocatedBytes, note_peaks
from dpprof.measure.passes.weights import checksums, note_moves
from dpprof.process import peak_rss_bytes
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record

_LEDGER_STEPS = 4
_TRACE_STEPS = trace.WAIT_STEPS + trace.WARMUP_STEPS + trace.ACTIVE_STEPS


class Stage(NamedTuple):
    """Steps that are observed alike: of a pass, or of the warm-up, which has no name."""

    name: str
    num_steps: int
    open: Callable[[], AbstractContextManager[Observer]]
    start_profiled_step: Callable[[], None] | None = None  # of a profiler, which has ranges


class LoopPasses:
    """Passes that add their results to a record."""

    def __init__(
        self,
        followed: Followed,
        folder: RunFolder,
        record: Record,
        config: ExperimentConfig,
        guard: Guard,
        profilers: Profilers,
    ) -> None:
        self._guard, self._profilers = guard, profilers
        self._followed, self._folder, self._record, self._config = followed, folder, record, config
        self._device = config.device

    def stages(self, measured_steps: int) -> list[Stage]:
        """Return the passes in order."""
        return [
            Stage("clean", measured_steps, self._timing),
            Stage("ledger", _LEDGER_STEPS, self._ledger, self._start_profiled_step),
            Stage("trace", _TRACE_STEPS, self._trace, self._start_profiled_step),
        ]

    @contextmanager
    def _timing(self) -> Iterator[Observer]:
        peaks = clean.PeakMemory() if self._device == "cuda" else Observer()
        with clean.timing(self._record, peaks, on_cuda=self._device == "cuda") as stopwatch:
            yield stopwatch
        if isinstance(peaks, clean.PeakMemory):
            peaks.note(self._record.memory)
        self._record.memory.peak_rss = peak_rss_bytes()

    @contextmanager
    def _ledger(self) -> Iterator[Observer]:
        """Keep the ledger and the allocator's events of the same steps, but for the first.

        The allocator's events tell nothing of the end of what was there before them.
        """
        self._profilers.refuse()
        on_cuda = self._device == "cuda"
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
        weights = checksums(self._followed.model)
        ledger = (BesideCompiled if num_compiled() else LoopLedger)(self._device, self._guard)
        self._quiet = Quiet(_LEDGER_STEPS + 1)
        findings = LoopFindings(
            self._followed.model,
            ledger.storages,
            self._guard,
            is_private="noise" in self._record.phase_s,
        )
        observer, frees = FromSecondStep(ledger, self._followed), list[Allocation]()
        with (
            ledger,
            findings.looking(),
            labelled_by_opacus(_Labels(observer, self._guard), self._followed.model),
            profile(activities=activities, profile_memory=True) as profiler,
        ):
            self._quiet.start()
            watched = _watched((t for t in tensors_alive() if ledger.storages.see(t) is not None), frees)
            yield observer
            del watched
            assert observer.highest is not None, "no step was done"
            kept = observer.highest
            moved = note_moves(weights, self._followed.model, self._config, self._record)
            still = [name for name, has_moved in moved.items() if not has_moved]
            self._record.warnings += findings.sentences(kept.account, observer.starts, still)
        self._record.ledger = kept.result
        self._folder.write_ledger(kept.result, kept.account.timeline())
        recording = read(profiler, self._device)
        if not on_cuda:
            known = [*own_allocations(profiler), *frees]
            recording.allocations[:] = sorted(known, key=lambda event: event.at)
        self._note_events(recording, observer.alive_at_start)

    @contextmanager
    def _trace(self) -> Iterator[Observer]:
        self._profilers.refuse()
        self._quiet = Quiet(trace.ACTIVE_STEPS)
        with trace.tracing(self._folder, self._record, self._device) as steps:
            yield steps

    def _start_profiled_step(self) -> None:
        self._quiet.start()

    def _note_events(self, recording: Recording, alive: int) -> None:
        """Note the allocator's peaks from the second step on, which began with `alive` bytes."""
        steps, on_cpu = recording.steps[1:], self._device == "cpu"
        seen = AllocatedBytes(recording, 0).at(steps[0].start)
        levels = AllocatedBytes(recording, alive - seen)
        note_peaks(self._record.memory, levels, recording.phases, steps, is_headline=on_cpu)


class _Labels(Observer):
    """Labels tensors for another observer, whatever fails."""

    def __init__(self, observer: Observer, guard: Guard) -> None:
        self._label, self.label_new = guard.hook(observer.label), observer.label_new  # type: ignore[method-assign]

    def label(self, category: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Assign tensors to a category."""
        self._label(category, tensors)


def labelled_by_opacus(observer: Observer, model: nn.Module) -> AbstractContextManager[None]:
    """Label the tensors within Opacus's functions, if the loop uses it."""
    if OPACUS not in sys.modules:
        return nullcontext()
    from dpprof.measure.trainers.opacus.labels import labelled_within

    return labelled_within(observer, model)


def _watched(tensors: Iterator[Tensor], frees: list[Allocation]) -> list[ref[UntypedStorage]]:
    """Record frees of storages made before the recording began, which the CPU profiler omits."""

    def note(num_bytes: int, _: object) -> None:
        frees.append(Allocation(time.time_ns(), -num_bytes, 0))

    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return [ref(storage, partial(note, storage.nbytes())) for storage in storages.values()]

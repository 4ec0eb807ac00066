"""The passes over a loop's steps: timing, ledger, allocator's events, trace."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile

from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.present import tensors_alive
from dpprof.measure.passes import clean, trace
from dpprof.measure.passes.events import read
from dpprof.measure.passes.ledger import Ledger, LedgerObserver
from dpprof.measure.passes.memory import AllocatedBytes, phase_peaks
from dpprof.measure.passes.storages import Storages
from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.nested import attributes
from dpprof.process import peak_rss_bytes
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.norm_forms import NormCost

_OPACUS = "opacus.grad_sample"
_LEDGER_STEPS, _MEMORY_STEPS = 2, 3
_TRACE_STEPS = trace.WAIT_STEPS + trace.WARMUP_STEPS + trace.ACTIVE_STEPS


class Stage(NamedTuple):
    """Steps that are observed alike: of a pass, or of the warm-up, which has no name."""

    name: str
    num_steps: int
    open: Callable[[], AbstractContextManager[Observer]]
    has_ranges: bool = False


class Followed:
    """The model and the optimizers of a loop, given or seen, and the tensors that they hold."""

    def __init__(self, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
        self.model = model or nn.Module()
        self.is_given = model is not None
        self.optimizers = optimizers

    def held_tensors(self) -> Held:
        """Return the tensors held now, by category; only categories with any."""
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        held: Held = {
            "parameters": list(self.model.named_parameters()),
            "buffers": list(self.model.named_buffers()),
            "gradients": attributes(self.model, "grad"),
            "optimizer_state": [
                (f"{names.get(parameter, '')}.{key}", value)
                for optimizer in self.optimizers
                for parameter, state in optimizer.state.items()
                for key, value in state.items()
                if isinstance(value, Tensor)
            ],
        }
        if _OPACUS in sys.modules:
            from dpprof.measure.trainers.opacus.labels import kept_on_parameters, norms_of_all

            held |= kept_on_parameters(self.model)
            for category, tensors in norms_of_all(self.model).items():
                held[category] = [*held.get(category, []), *tensors]
        return {category: tensors for category, tensors in held.items() if tensors}

    def norm_costs(self) -> dict[str, NormCost]:
        """Return nothing: how a loop computes norms is its own affair."""
        return {}


class LoopPasses:
    """Passes that add their results to a record. `close` forgets what the ledger followed."""

    def __init__(self, followed: Followed, folder: RunFolder, record: Record, device: str) -> None:
        self._followed, self._folder, self._record, self._device = followed, folder, record, device
        self._storages = ExitStack()

    def stages(self, measured_steps: int) -> list[Stage]:
        """Return the passes in order."""
        return [
            Stage("clean", measured_steps, self._timing),
            Stage("ledger", _LEDGER_STEPS, self._ledger),
            Stage("memory", _MEMORY_STEPS, self._memory, has_ranges=True),
            Stage("trace", _TRACE_STEPS, self._trace, has_ranges=True),
        ]

    def close(self) -> None:
        """Stop following storages."""
        self._storages.close()

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
        ledger = self._kept = Ledger(self._device)
        self._storages.enter_context(ledger.storages)
        observer = LedgerObserver(ledger, self._followed)
        with ledger.accounting(), _labelled(observer, self._followed.model):
            for tensor in tensors_alive():
                ledger.storages.see(tensor)
            yield observer
        assert observer.highest is not None, "no step was done"
        kept = observer.highest
        self._record.ledger = kept.result
        self._folder.write_ledger(kept.result, kept.account.timeline())

    @contextmanager
    def _memory(self) -> Iterator[Observer]:
        on_cuda = self._device == "cuda"
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
        held = _HeldAtStart(self._kept.storages)
        with self._kept.accounting(), profile(activities=activities, profile_memory=True) as profiler:
            yield held
        recording = read(profiler, self._device)
        steps, memory = recording.steps[1:], self._record.memory
        seen = AllocatedBytes(recording, 0).at(steps[0].start)
        levels = AllocatedBytes(recording, held.num_bytes[1] - seen)
        memory.phase_peak = phase_peaks(recording.phases, levels, steps)
        if not on_cuda:
            memory.step_peak = [levels.peak(step) for step in steps]
            memory.peak_allocated = max(memory.step_peak)
            memory.after_step = levels.at(steps[-1].end)

    @contextmanager
    def _trace(self) -> Iterator[Observer]:
        with trace.tracing(self._folder, self._record, self._device) as observer:
            yield observer


def _labelled(observer: Observer, model: nn.Module) -> AbstractContextManager[None]:
    """Label the tensors within Opacus's functions, if the loop uses it."""
    if _OPACUS not in sys.modules:
        return nullcontext()
    from dpprof.measure.trainers.opacus.labels import labelled_everywhere

    return labelled_everywhere(observer, model)


class _HeldAtStart(Observer):
    """Bytes that the ledger sees alive at the start of each step of a recording.

    The recording itself does not see the end of what was there before it: gradients, in its first step.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self.num_bytes: list[int] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Take the bytes."""
        self.num_bytes.append(self._storages.live_bytes())
        yield

"""The memory pass: a short recording of the allocator's events, from the model's creation on.

Gives the peak of each phase, against which the ledger is checked, and the effect of each saving that the loop
does not make, from one more step. On the CPU, where torch keeps no allocator statistics, it also gives the
headline peak. It records neither shapes nor stacks, which would keep tensors alive.
"""

import bisect
import gc
import itertools

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dpprof.measure.observe import Observer
from dpprof.measure.passes.events import Recording, Span, read
from dpprof.measure.passes.subject import Subject
from dpprof.record.record import Memory
from dpprof.vocabulary.loops import savings_to_measure
from dpprof.vocabulary.phases import label_of

_RECORDED_STEPS = 3


def run(subject: Subject) -> None:
    """Record the first step and a few more, then one with each saving."""
    on_cuda = subject.config.device == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
    held_before = torch.cuda.memory_allocated() if on_cuda else 0
    with profile(activities=activities, profile_memory=True) as profiler:
        training = subject.build()
        training.run(1 + _RECORDED_STEPS, Observer())
        savings = savings_to_measure(training.trainer.savings)
        for made in savings.values():
            training.trainer.save(made)
            training.run(1, Observer())
        with record_function(label_of("cleanup")):  # outside of any step
            training.trainer.drop_gradients()
            gc.collect()
    recording = read(profiler, subject.config.device, with_operators=False)
    levels = AllocatedBytes(recording, held_before)
    memory = subject.record.memory
    first, *rest = recording.steps
    others, saving = rest[:_RECORDED_STEPS], rest[_RECORDED_STEPS:]
    highest = note_peaks(memory, levels, recording.phases, others, is_headline=not on_cuda)
    memory.saved = {name: highest - levels.peak(step) for name, step in zip(savings, saving, strict=True)}
    if not on_cuda:
        memory.first_step_peak = levels.peak(first)
        memory.after_cleanup = levels.at(recording.phases[-1].end)


class AllocatedBytes:
    """Bytes allocated over time."""

    def __init__(self, recording: Recording, base: int) -> None:
        self._times = [a.at for a in recording.allocations]
        sizes = (a.num_bytes for a in recording.allocations)
        self._levels = list(itertools.accumulate(sizes, initial=base))

    def at(self, moment: int) -> int:
        """Return the bytes allocated at a moment."""
        return self._levels[bisect.bisect_right(self._times, moment)]

    def within(self, span: Span) -> list[int]:
        """Return the levels within a span, in order, beginning with the one at its start."""
        first, last = (bisect.bisect_right(self._times, moment) for moment in (span.start, span.end))
        return self._levels[first : last + 1]

    def peak(self, span: Span) -> int:
        """Return the peak of a span in bytes."""
        return max(self.within(span))


def note_peaks(
    memory: Memory, levels: AllocatedBytes, phases: list[Span], steps: list[Span], *, is_headline: bool
) -> int:
    """Note each phase's peak over some steps, and those of the steps if asked; return the highest."""
    for phase in phases:
        if any(step.start <= phase.start and phase.end <= step.end for step in steps):
            memory.phase_peak[phase.name] = max(memory.phase_peak.get(phase.name, 0), levels.peak(phase))
    step_peak = [levels.peak(step) for step in steps]
    if is_headline:
        memory.step_peak, memory.peak_allocated = step_peak, max(step_peak)
        memory.after_step = levels.at(steps[-1].end)
    return max(step_peak)

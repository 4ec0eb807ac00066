"""The memory pass: a short recording of the allocator's events, from the model's creation on.

Gives the memory timeline of a step on every device. On the CPU, where torch keeps no allocator statistics,
the headline peak memory comes from here too. No shapes and no stacks are recorded: those keep references to
tensors, and memory measured under them would not be the model's.
"""

import gc
import itertools
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dpprof.observe import Observer, Subject
from dpprof.passes.events import Recording, Span, read

_RECORDED_STEPS = 3
_CLEANUP = "cleanup"


def run(subject: Subject) -> None:
    """Record a first step and some more, and write the timeline of the last."""
    on_cuda = subject.config.device == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda
    held_before = torch.cuda.memory_allocated() if on_cuda else 0
    with profile(activities=activities, profile_memory=True) as profiler:
        training = subject.build()
        training.run(1 + _RECORDED_STEPS, Observer())
        with record_function(_CLEANUP):
            training.drop_gradients()
            gc.collect()
    recording = read(profiler, subject.config.device, frozenset({_CLEANUP}))
    levels = Levels(recording, held_before)
    if not on_cuda:
        memory = subject.record.memory
        first, *others = recording.steps
        memory.first_step_peak = levels.peak(first)
        memory.step_peak = [levels.peak(step) for step in others]
        memory.peak_allocated = max(memory.step_peak)
        memory.after_step = levels.at(others[-1].end)
        memory.after_cleanup = levels.at(recording.marks[0].end)
    subject.folder.write_timeline(timeline(recording, levels, recording.steps[-1]))


class Levels:
    """Bytes allocated over time."""

    def __init__(self, recording: Recording, base: int) -> None:
        self.times = [a.at for a in recording.allocations]
        sizes = (a.num_bytes for a in recording.allocations)
        self.values = [base + level for level in itertools.accumulate(sizes)]
        self.base = base

    def at(self, moment: int) -> int:
        """Bytes allocated at a moment."""
        level = self.base
        for time, value in zip(self.times, self.values, strict=True):
            if time > moment:
                break
            level = value
        return level

    def within(self, span: Span) -> list[tuple[int, int]]:
        """(time, bytes) from the span's start, where the level of before is carried on, to its end."""
        points = [(span.start, self.at(span.start))]
        points += [(t, v) for t, v in zip(self.times, self.values, strict=True) if span.start < t <= span.end]
        return [*points, (span.end, points[-1][1])]

    def peak(self, span: Span) -> int:
        """The most bytes allocated at any moment of a span."""
        return max(value for _, value in self.within(span))


def timeline(recording: Recording, levels: Levels, step: Span) -> dict[str, Any]:
    """The memory timeline of one step as plain data: times in seconds from its start, bytes, phases."""
    points = levels.within(step)
    return {
        "seconds": [(time - step.start) / 1e9 for time, _ in points],
        "allocated": [value for _, value in points],
        "phases": [
            {
                "name": phase.name,
                "start": (phase.start - step.start) / 1e9,
                "end": (phase.end - step.start) / 1e9,
            }
            for phase in recording.phases
            if step.start <= phase.start and phase.end <= step.end
        ],
    }

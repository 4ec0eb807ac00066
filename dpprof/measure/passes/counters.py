"""The counters pass, from inside: the one step that Nsight Compute counts.

Runs in a measuring process of its own, wrapped by `ncu` (`drive/counters.py` starts it). Everything before
the step runs at full speed: counting begins with cudaProfilerStart.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dpprof.measure.observe import Observer, Subject
from dpprof.vocabulary.phases import PHASE_LABEL


def run(subject: Subject) -> None:
    """Warm up, then do one step between cudaProfilerStart and cudaProfilerStop."""
    training = subject.build()
    training.run(subject.config.measuring.warmup_steps, Observer())
    training.run(1, _Counted() if subject.config.device == "cuda" else Observer())


class _Counted(Observer):
    """Opens the process-wide range around a step, and around each phase a range of no thread."""

    @contextmanager
    def step(self) -> Iterator[None]:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        yield
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        opened = torch.cuda.nvtx.range_start(PHASE_LABEL + name)
        yield
        torch.cuda.nvtx.range_end(opened)

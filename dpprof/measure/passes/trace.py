"""The trace pass: torch.profiler with shapes and stacks.

The operators' rows are of all traced steps; the trace that is kept shows the last one.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from dpprof.measure.observe import Observer, Subject
from dpprof.measure.passes.events import read
from dpprof.measure.passes.operators import account
from dpprof.measure.passes.slim_trace import slim
from dpprof.record.files import write_gzipped_json
from dpprof.record.folder import TRACE_SUFFIX
from dpprof.record.record import OperatorRow

WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS = 1, 2, 3


def run(subject: Subject) -> None:
    """Trace three steps; keep the operators' rows, and a small trace of the last step."""
    on_cuda = subject.config.device == "cuda"
    training = subject.build()
    observer = _Profiler(subject, on_cuda)
    training.run(WAIT_STEPS + WARMUP_STEPS + ACTIVE_STEPS, observer)
    subject.record.operators = observer.rows
    subject.record.traced_steps = ACTIVE_STEPS


class _Profiler(Observer):
    """torch.profiler as an observer: if a step fails, it still writes what it has."""

    def __init__(self, subject: Subject, on_cuda: bool) -> None:
        self._subject = subject
        self._on_cuda = on_cuda
        self.rows: list[OperatorRow] = []
        self._profiler = profile(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda,
            schedule=schedule(wait=WAIT_STEPS, warmup=WARMUP_STEPS, active=ACTIVE_STEPS, repeat=1),
            on_trace_ready=self._save,
            profile_memory=True,
            record_shapes=True,
            with_stack=True,
        )

    def __enter__(self) -> "_Profiler":
        self._profiler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._profiler.__exit__(*error)

    @contextmanager
    def step(self) -> Iterator[None]:
        yield
        if self._on_cuda:
            torch.cuda.synchronize()
        self._profiler.step()

    def _save(self, profiler: "profile") -> None:
        # TensorBoard's plugin takes the worker's name and the time from the file's name.
        path = self._subject.folder.tensorboard / f"dpprof.{time.time_ns()}{TRACE_SUFFIX}"
        whole = path.with_suffix("")
        profiler.export_chrome_trace(str(whole))
        self.rows = account(read(profiler, self._subject.config.device), has_kernels=self._on_cuda)
        # Names from outside may hold bytes and control characters that strict JSON forbids.
        text = whole.read_text(encoding="utf-8", errors="replace")
        whole.unlink()
        write_gzipped_json(path, slim(json.loads(text, strict=False)))

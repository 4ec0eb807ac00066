"""Reads the events of torch.profiler as plain data.

Goes through the raw events once: `key_averages()` takes many times as long on Opacus's traces.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType
from torch._C._profiler import _EventType
from torch.profiler import profile

from dpprof.vocabulary.phases import STEP_LABEL, phase_of


@dataclass(frozen=True)
class Span:
    """A named interval, in ns since an arbitrary zero."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Operator(Span):
    """An operator on the host; `kernel_ns` is the time of the kernels that it launched itself."""

    thread: int
    kernel_ns: int = 0


@dataclass(frozen=True)
class Allocation:
    """Bytes allocated (positive) or freed (negative) by torch's allocator."""

    at: int
    num_bytes: int
    thread: int


@dataclass(frozen=True)
class Recording:
    """The profiler's events, each list in order of time."""

    steps: list[Span]
    phases: list[Span]
    operators: list[Operator]
    allocations: list[Allocation]


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: reading makes many objects, and collecting would look at all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@no_collection()
def read(profiler: "profile", device: str, *, with_operators: bool = True) -> Recording:
    """Read a stopped profiler: allocations only on `device`, operators if asked for."""
    assert profiler.profiler is not None, "the profiler has not run"
    results: Any = profiler.profiler.kineto_results
    wanted = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    recording = Recording([], [], [], [])
    kernels: Counter[int] = Counter()
    operators: list[tuple[Any, str]] = []
    for event in results.events():
        name = event.name()
        # Older releases of torch keep Python functions out of this list, and events lack the method.
        if getattr(event, "is_python_function", bool)():
            continue
        if name == "[memory]":
            if event.device_type() == wanted:
                recording.allocations.append(
                    Allocation(event.start_ns(), event.nbytes(), event.start_thread_id())
                )
        elif event.device_type() != DeviceType.CPU:
            if not event.is_user_annotation():
                kernels[event.linked_correlation_id()] += event.duration_ns()
        elif name == STEP_LABEL:
            recording.steps.append(_span(event, name))
        elif (phase := phase_of(name)) is not None:
            recording.phases.append(_span(event, phase))
        elif with_operators and not event.is_user_annotation() and event.linked_correlation_id() == 0:
            operators.append((event, name))
    for event, name in operators:
        kernel_ns = kernels[event.correlation_id()]
        start = event.start_ns()
        recording.operators.append(
            Operator(name, start, start + event.duration_ns(), event.start_thread_id(), kernel_ns)
        )
    recording.allocations.sort(key=lambda a: a.at)
    for spans in (recording.steps, recording.phases, recording.operators):
        spans.sort(key=lambda s: (s.start, -s.end))
    return recording


@no_collection()
def own_allocations(profiler: "profile") -> list[Allocation]:
    """Read the CPU allocator's events of a stopped profiler that are of blocks made while it ran.

    torch keeps the size of a block that it has recorded until it records its free. If that came after the
    profiler stopped, and an older block of this recording lies at the same address, its free is reported with
    the size of the other. Only the profiler's tree knows addresses.
    """
    assert profiler.profiler is not None, "the profiler has not run"
    results: Any = profiler.profiler.kineto_results
    nodes, events = list(results.experimental_event_tree()), []
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag == _EventType.Allocation and node.extra_fields.device.type == "cpu":
            events.append(node)
    own, alive = [], set[int]()
    for event in sorted(events, key=lambda event: event.start_time_ns):
        address, num_bytes = event.extra_fields.ptr, event.extra_fields.alloc_size
        if num_bytes > 0:
            alive.add(address)
        elif address not in alive:
            continue
        else:
            alive.remove(address)
        own.append(Allocation(event.start_time_ns, num_bytes, event.start_tid))
    return own


def _span(event: Any, name: str) -> Span:
    return Span(name, event.start_ns(), event.start_ns() + event.duration_ns())

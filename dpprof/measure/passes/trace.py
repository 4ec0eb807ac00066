"""The trace pass: torch.profiler with shapes and stacks.

The operators' rows cover all traced steps. The trace that is kept is small: the last step, without strides
and scalar inputs, without Python calls of built-in functions and within torch (the modules and operators that
these call stay), and without most of an operator's calls of one other (`aten::unique_dim` compares rows one
by one).
"""

import bisect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from dpprof.measure.observe import Observer
from dpprof.measure.passes.events import Allocation, Operator, Recording, Span, no_collection, read
from dpprof.measure.passes.subject import Subject
from dpprof.record.files import write_gzipped_json
from dpprof.record.folder import TRACE_SUFFIX, RunFolder
from dpprof.record.record import OperatorRow, Record
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.operator_classes import WHOLE, class_by_name, class_in_phase

WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS = 1, 2, 3
OUTSIDE = "(outside operators)"

Event = dict[str, Any]

STEP_MARK = "ProfilerStep#"
# Number of direct calls of one operator by another to keep.
MOST_EQUAL_CALLS = 100
_NOT_READ = frozenset({"Ev Idx", "Record function id", "Input Strides", "Concrete Inputs", "finished"})
# Links a kernel with the operator that launched it.
_LINK = "External id"


def run(subject: Subject) -> None:
    """Trace three steps; keep the operators' rows, and a small trace of the last step."""
    training = subject.build()
    with tracing(subject.folder, subject.record, subject.config.device, subject.times_taken) as steps:
        training.run(WAIT_STEPS + WARMUP_STEPS + ACTIVE_STEPS, steps)


@contextmanager
def tracing(
    folder: RunFolder, record: Record, device: str, recorded: Callable[[], None] = lambda: None
) -> Iterator[Observer]:
    """Trace the last three of the six steps done inside, and keep the rows and the trace.

    Calls `recorded` when the profiler has stopped.
    """
    on_cuda = device == "cuda"
    rows: list[OperatorRow] = []

    def save(profiler: profile) -> None:
        recorded()
        # TensorBoard's plugin takes the worker's name and the time from the file's name.
        path = folder.tensorboard / f"dpprof.{time.time_ns()}{TRACE_SUFFIX}"
        whole = path.with_suffix("")
        profiler.export_chrome_trace(str(whole))
        rows.extend(operator_rows(read(profiler, device), has_kernels=on_cuda))
        # Names from outside may hold bytes and control characters that strict JSON forbids.
        text = whole.read_text(encoding="utf-8", errors="replace")
        whole.unlink()
        with no_collection():
            write_gzipped_json(path, slim(json.loads(text, strict=False)))

    with profile(  # which saves what it has even if a step fails
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_cuda,
        schedule=schedule(wait=WAIT_STEPS, warmup=WARMUP_STEPS, active=ACTIVE_STEPS, repeat=1),
        on_trace_ready=save,
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
    ) as profiler:
        yield _Steps(profiler, on_cuda)
    record.operators = rows
    record.traced_steps = ACTIVE_STEPS


class _Steps(Observer):
    """Tells a profiler of the end of each step."""

    def __init__(self, profiler: profile, on_cuda: bool) -> None:
        self._profiler, self._on_cuda = profiler, on_cuda

    @contextmanager
    def step(self) -> Iterator[None]:
        yield
        if self._on_cuda:
            torch.cuda.synchronize()
        self._profiler.step()


def operator_rows(recording: Recording, *, has_kernels: bool) -> list[OperatorRow]:
    """Return rows by operator, class and phase within steps, largest self time first.

    Without `has_kernels`, when no kernel times were traced, `device_self_s` is None.
    """
    phases, steps = _Ranges(recording.phases), _Ranges(recording.steps)
    rows: dict[tuple[str, str, str | None], OperatorRow] = {}

    def row_of(name: str, class_name: str, phase: str | None) -> OperatorRow:
        key = (name, class_name, phase)
        return rows.setdefault(key, OperatorRow(*key, 0, 0.0, 0.0 if has_kernels else None, 0))

    births = [allocation for allocation in recording.allocations if allocation.num_bytes > 0]
    events: list[Operator | Allocation] = [*recording.operators, *births]
    for _, of_thread in sorted(grouped(events, lambda event: event.thread).items()):
        nodes, outside = _nest(of_thread)
        for node in nodes:
            operator = node.operator
            if steps.at(operator.start) is None:
                continue
            phase = phases.at(operator.start)
            row = row_of(operator.name, class_in_phase(node.class_name, phase), phase)
            row.calls += 1
            row.self_s += node.self_ns / 1e9
            row.allocated += node.allocated
            if row.device_self_s is not None:
                row.device_self_s += operator.kernel_ns / 1e9
        for allocation in outside:
            if steps.at(allocation.at) is not None:
                phase = phases.at(allocation.at)
                row_of(OUTSIDE, class_in_phase(None, phase), phase).allocated += allocation.num_bytes
    return sorted(rows.values(), key=lambda r: -(r.self_s if r.device_self_s is None else r.device_self_s))


class _Node:
    """An operator in the tree of calls: its class, its self time and its own allocations."""

    def __init__(self, operator: Operator, parent: "_Node | None") -> None:
        self.operator, self.parent = operator, parent
        self.self_ns = operator.end - operator.start
        self.allocated = 0
        outer = parent.class_name if parent is not None else None
        self.class_name: str | None = outer if outer in WHOLE else class_by_name(operator.name) or outer


def _nest(events: list[Operator | Allocation]) -> tuple[list[_Node], list[Allocation]]:
    """Nest one thread's operators, sorted by (start, -end), and assign allocations to the innermost.

    Returns the allocations outside all operators too. `copy.deepcopy` of a tensor makes some.
    """
    nodes: list[_Node] = []
    outside: list[Allocation] = []
    innermost: _Node | None = None
    for event in sorted(events, key=_begin):
        while innermost is not None and innermost.operator.end <= _begin(event):
            innermost = innermost.parent
        if isinstance(event, Operator):
            if innermost is not None:
                innermost.self_ns -= event.end - event.start
            innermost = _Node(event, innermost)
            nodes.append(innermost)
        elif innermost is not None:
            innermost.allocated += event.num_bytes
        else:
            outside.append(event)
    return nodes, outside


def _begin(event: Operator | Allocation) -> int:
    return event.start if isinstance(event, Operator) else event.at


class _Ranges:
    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._starts = [span.start for span in spans]

    def at(self, moment: int) -> str | None:
        index = bisect.bisect_right(self._starts, moment) - 1
        if index >= 0 and moment <= self._spans[index].end:
            return self._spans[index].name
        return None


def slim(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the last step of a Chrome trace, with only the parts that a reader looks at."""
    events = _last_step(trace["traceEvents"])
    events = _without_functions_of_torch(events)
    events = _without_many_equal_calls(events)
    has_kernels = any(event.get("cat") == "kernel" for event in events)
    not_read = _NOT_READ if has_kernels else _NOT_READ | {_LINK}
    notes = (
        "the last of the traced steps, without Python calls of built-in functions and within torch; "
        f"of an operator's calls of one other the first {MOST_EQUAL_CALLS}"
    )
    return trace | {"traceEvents": [_without(not_read, event) for event in events], "dpprof": notes}


def _last_step(events: list[Event]) -> list[Event]:
    annotations = [event for event in events if event.get("cat") == "user_annotation"]
    marks = [event for event in annotations if str(event["name"]).startswith(STEP_MARK)]
    if not marks:
        return events
    last = max(marks, key=lambda event: float(event["ts"]))
    start, end = last["ts"], last["ts"] + last["dur"]
    return [event for event in events if event["ph"] == "M" or start <= event["ts"] <= end]


def _without_functions_of_torch(events: list[Event]) -> list[Event]:
    """Drop Python calls of C functions and within torch. Their callees move up to the next kept caller."""
    parents: dict[int, int | None] = {}
    for event in events:
        if event.get("cat") == "python_function" and str(event["name"]).startswith(("<built-in", "torch/")):
            parents[event["args"]["Python id"]] = event["args"].get("Python parent id")
    kept = []
    for event in events:
        if event.get("cat") == "python_function":
            args = event["args"]
            if args["Python id"] in parents:
                continue
            parent = args.get("Python parent id")
            while parent in parents:
                parent = parents[parent]
            event = event | {"args": args | {"Python parent id": parent}}
        kept.append(event)
    return kept


def _without_many_equal_calls(events: list[Event]) -> list[Event]:
    """Keep the first hundred calls of one operator by another, with all that these call."""
    left_out: set[int] = set()
    stacks: dict[Any, list[tuple[float, bool, Counter[str]]]] = {}
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
        # For each open operator of the thread: its end, whether it is left out, its calls by name.
        stack = stacks.setdefault(event["tid"], [])
        while stack and stack[-1][0] <= event["ts"]:
            stack.pop()
        is_left_out = False
        if stack:
            _, is_left_out, calls = stack[-1]
            calls[event["name"]] += 1
            is_left_out |= calls[event["name"]] > MOST_EQUAL_CALLS
        if is_left_out:
            left_out.add(id(event))
        stack.append((event["ts"] + event["dur"], is_left_out, Counter()))
    return [event for event in events if id(event) not in left_out]


def _without(not_read: frozenset[str], event: Event) -> Event:
    args = event.get("args")
    if not args:
        return event
    return event | {"args": {name: value for name, value in args.items() if name not in not_read}}

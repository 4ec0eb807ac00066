"""Makes a torch.profiler trace small: one step of those traced, and what a reader looks at in it.

What is left out: the other steps, Python calls of built-in functions and of functions within torch (the
modules and operators that they call stay), the bulk of an operator's calls of one other (`aten::unique_dim`
compares rows one by one), strides and scalar inputs. Shapes, types, modules, functions of the training loop
and of Opacus, allocations and kernels stay.
"""

from collections import Counter
from typing import Any

Event = dict[str, Any]

STEP_MARK = "ProfilerStep#"
# Of an operator's direct calls of one other operator so many stay.
MOST_EQUAL_CALLS = 100
_NOT_READ = frozenset({"Ev Idx", "Record function id", "Input Strides", "Concrete Inputs", "finished"})
# Links a kernel with the operator that launched it.
_LINK = "External id"


def slim(trace: dict[str, Any]) -> dict[str, Any]:
    """The last step of a trace in Chrome's format, with the parts that a reader looks at."""
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
    """What happened in the last step that was marked, and the names of processes and threads."""
    marks = [event for event in events if _is_step_mark(event)]
    if not marks:
        return events
    last = max(marks, key=lambda event: float(event["ts"]))
    start, end = last["ts"], last["ts"] + last["dur"]
    return [event for event in events if event["ph"] == "M" or start <= event["ts"] <= end]


def _is_step_mark(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith(STEP_MARK)


def _without_functions_of_torch(events: list[Event]) -> list[Event]:
    """Python calls without those of C functions and those within torch; what these call has the next caller
    above them as parent.
    """
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
    """Of an operator's calls of the same other one only the first hundred, with all that these call."""
    left_out: set[int] = set()
    stacks: dict[Any, list[tuple[float, bool, Counter[str]]]] = {}
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
        # Of each operator still open on the thread: its end, whether it is left out, its calls by name.
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

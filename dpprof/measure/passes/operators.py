"""Totals the operators of a recording by operator, class and phase: self time, calls and bytes allocated."""

import bisect
from collections import defaultdict

from dpprof.measure.passes.events import Operator, Recording, Span
from dpprof.record.record import OperatorRow
from dpprof.vocabulary.operator_classes import WHOLE, class_by_name, class_in_phase

OUTSIDE = "(outside operators)"


def account(recording: Recording, *, has_kernels: bool) -> list[OperatorRow]:
    """Rows by operator, class and phase, largest self time first. Operators outside steps are left out.

    `has_kernels` says that kernel times were traced; without them `device_self_s` is None.
    """
    phases, steps = _Ranges(recording.phases), _Ranges(recording.steps)
    rows: dict[tuple[str, str, str | None], OperatorRow] = {}

    def row_of(name: str, class_name: str, phase: str | None) -> OperatorRow:
        key = (name, class_name, phase)
        if key not in rows:
            rows[key] = OperatorRow(name, class_name, phase, 0, 0.0, 0.0 if has_kernels else None, 0)
        return rows[key]

    by_thread: dict[int, list[Operator]] = defaultdict(list)
    for operator in recording.operators:
        by_thread[operator.thread].append(operator)
    allocations: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for allocation in recording.allocations:
        if allocation.num_bytes > 0:
            allocations[allocation.thread].append((allocation.at, allocation.num_bytes))

    for thread in sorted({*by_thread, *allocations}):
        nodes, outside = _nest(by_thread[thread], allocations[thread])
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
        for at, num_bytes in outside:
            if steps.at(at) is not None:
                phase = phases.at(at)
                row_of(OUTSIDE, class_in_phase(None, phase), phase).allocated += num_bytes
    return sorted(rows.values(), key=lambda r: -(r.self_s if r.device_self_s is None else r.device_self_s))


class _Node:
    """An operator in the tree of calls: its class, its time outside inner operators, its own allocations."""

    __slots__ = ("allocated", "class_name", "operator", "self_ns", "whole")

    def __init__(self, operator: Operator, parent: "_Node | None") -> None:
        self.operator = operator
        self.self_ns = operator.end - operator.start
        self.allocated = 0
        if parent is not None and parent.whole:
            own = parent.class_name
        else:
            own = class_by_name(operator.name) or (parent.class_name if parent else None)
        self.class_name: str | None = own
        self.whole: bool = own in WHOLE


def _nest(
    operators: list[Operator], allocations: list[tuple[int, int]]
) -> tuple[list[_Node], list[tuple[int, int]]]:
    """Nest one thread's operators, sorted by (start, -end), and assign each allocation to the innermost one.

    Also returns the allocations outside all operators (`copy.deepcopy` of a tensor makes some).
    """
    nodes: list[_Node] = []
    outside: list[tuple[int, int]] = []
    stack: list[_Node] = []
    pending = iter(allocations)
    following = next(pending, None)

    def close_until(at: int) -> None:
        """Pop operators that end before `at`; assign allocations on the way to the innermost."""
        nonlocal following
        while True:
            end = stack[-1].operator.end if stack else at
            limit = min(end, at)
            while following is not None and following[0] < limit:
                if stack:
                    stack[-1].allocated += following[1]
                else:
                    outside.append(following)
                following = next(pending, None)
            if not stack or end > at:
                return
            stack.pop()

    for operator in operators:
        close_until(operator.start)
        parent = stack[-1] if stack else None
        node = _Node(operator, parent)
        if parent is not None:
            parent.self_ns -= operator.end - operator.start
        nodes.append(node)
        stack.append(node)
    close_until(max((moment for moment, _ in allocations), default=0) + 1)
    close_until(max((operator.end for operator in operators), default=0) + 1)
    return nodes, outside


class _Ranges:
    """Finds which of several ranges, none of which overlap, contains a moment."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._starts = [span.start for span in spans]

    def at(self, moment: int) -> str | None:
        index = bisect.bisect_right(self._starts, moment) - 1
        if index >= 0 and moment <= self._spans[index].end:
            return self._spans[index].name
        return None

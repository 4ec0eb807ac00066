"""Groups the operators of a recording into classes, with self time, calls and bytes allocated.

The class of an operator, in this order:
1. Everything in the phases `clip`, `noise` and `optimizer_step` belongs to `norm_clip`, `noise` and
   `optimizer`: a multiplication that clips is the cost of clipping.
2. Everything inside an operator of `attention`, `embedding` or `loss` belongs to it, whatever it is made of.
3. Else its own name decides; one without a class of its own (`empty`, `view`) belongs to the operator
   around it, and to `other` if there is none.
"""

import bisect
import re
from collections import defaultdict
from functools import cache

from dpprof.passes.events import Operator, Recording, Span
from dpprof.record import OperatorRow

_PHASE_CLASS = {"clip": "norm_clip", "noise": "noise", "optimizer_step": "optimizer"}
_WHOLE = ("attention", "embedding", "loss")
_CLASSES = [
    ("attention", r"scaled_dot_product|flash_attention|efficient_attention|cudnn_attention"),
    ("embedding", r"embedding|unique"),
    ("loss", r"cross_entropy|nll_loss|log_softmax|mse_loss|binary_cross_entropy"),
    ("matrix_product", r"mm|addmm|bmm|baddbmm|addmv|mv|dot|mkldnn_linear|convolution"),
    ("norm_clip", r"linalg_vector_norm|norm|clamp|clamp_min|clamp_max"),
    ("noise", r"normal|randn|randn_like"),
    (
        "copy",
        r"copy|clone|cat|stack|contiguous|repeat|_reshape_copy|index_select|gather|index|slice_backward|to_copy",
    ),
    (
        "reduction",
        r"sum|mean|amax|max|min|argmax|cumsum|native_layer_norm.*|native_batch_norm.*|_?softmax.*|any|all",
    ),
    (
        "elementwise",
        r"add|sub|mul|div|rsub|neg|exp|log|sqrt|rsqrt|reciprocal|pow|square|abs|sigmoid|tanh|relu|gelu.*|silu.*"
        r"|where|masked_fill|threshold_backward|tanh_backward|fill|zero|ones|zeros|full|ones_like|zeros_like"
        r"|full_like|new_zeros|new_ones|new_full|lerp"
        r"|addcmul|addcdiv|eq|ne|lt|gt|le|ge|bitwise_.*|arange|triu|tril|native_dropout.*",
    ),
]
_WHOLE_PATTERN = {name: re.compile(pattern) for name, pattern in _CLASSES if name in _WHOLE}
_NAME_PATTERN = [(name, re.compile(pattern)) for name, pattern in _CLASSES if name not in _WHOLE]
OUTSIDE = "(outside operators)"
OPERATOR_CLASSES = (*(name for name, _ in _CLASSES), "optimizer", "other")


@cache
def class_by_name(name: str) -> str | None:
    """The class that an operator's name alone tells, e.g. `aten::addmm` -> `matrix_product`."""
    bare = name.rpartition("::")[2]
    for class_name, pattern in _WHOLE_PATTERN.items():
        if pattern.search(bare):
            return class_name
    stem = bare.strip("_")
    for class_name, pattern in _NAME_PATTERN:
        if pattern.fullmatch(bare) or pattern.fullmatch(stem):
            return class_name
    return None


def class_in_phase(class_name: str | None, phase: str | None) -> str:
    """The class that counts, given the one that the operator itself tells and the phase it runs in."""
    return _PHASE_CLASS.get(phase or "", class_name or "other")


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
    """An operator in its nest: class, time not spent in inner operators, bytes allocated by itself."""

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
        self.whole: bool = own in _WHOLE


def _nest(
    operators: list[Operator], allocations: list[tuple[int, int]]
) -> tuple[list[_Node], list[tuple[int, int]]]:
    """Nest one thread's operators, sorted by (start, -end), and give each allocation to the innermost.

    Second come the allocations outside any operator: `copy.deepcopy` of a tensor makes such.
    """
    nodes: list[_Node] = []
    outside: list[tuple[int, int]] = []
    stack: list[_Node] = []
    pending = iter(allocations)
    following = next(pending, None)

    def close_until(at: int) -> None:
        """Pop operators that end before `at`, giving allocations on the way to whichever was innermost."""
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
    """Looks up which of some ranges, none of them overlapping, holds a moment."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._starts = [span.start for span in spans]

    def at(self, moment: int) -> str | None:
        index = bisect.bisect_right(self._starts, moment) - 1
        if index >= 0 and moment <= self._spans[index].end:
            return self._spans[index].name
        return None

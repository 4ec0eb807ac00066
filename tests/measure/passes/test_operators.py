from collections.abc import Iterable, Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.measure.passes.events import Allocation, Operator, Recording, Span
from dpprof.measure.passes.operators import account
from dpprof.record.record import OperatorRow

STEP = Span("training_step", 0, 1_000)


def recording(
    operators: Iterable[Operator],
    allocations: Sequence[Allocation] = (),
    phases: Sequence[Span] = (),
    steps: Sequence[Span] = (STEP,),
) -> Recording:
    in_order = sorted(operators, key=lambda o: (o.start, -o.end))
    return Recording(list(steps), list(phases), [], in_order, list(allocations))


def op(name: str, start: int, end: int, thread: int = 1, kernel_ns: int = 0) -> Operator:
    return Operator(f"aten::{name}", start, end, thread, kernel_ns)


def rows(recording: Recording, *, has_kernels: bool = False) -> dict[str, OperatorRow]:
    found = account(recording, has_kernels=has_kernels)
    assert len({row.name for row in found}) == len(found)
    return {row.name.removeprefix("aten::"): row for row in found}


def self_ns(recording: Recording) -> dict[str, int]:
    return {name: round(1e9 * row.self_s) for name, row in rows(recording).items()}


def classes(recording: Recording) -> dict[str, str]:
    return {name: row.operator_class for name, row in rows(recording).items()}


def test_self_time_is_without_the_operators_directly_inside() -> None:
    found = self_ns(
        recording([op("linear", 100, 200), op("addmm", 110, 180), op("copy_", 120, 150), op("sum", 185, 195)])
    )
    assert found == {"linear": 100 - 70 - 10, "addmm": 70 - 30, "copy_": 30, "sum": 10}


def test_operators_that_touch_or_start_together() -> None:
    found = self_ns(recording([op("linear", 0, 50), op("t", 0, 20), op("addmm", 20, 50), op("add", 50, 60)]))
    assert found == {"linear": 0, "t": 20, "addmm": 30, "add": 10}


def test_calls_of_one_operator_in_one_phase_are_one_row() -> None:
    phases = [Span("forward", 0, 100), Span("backward", 200, 300)]
    found = account(
        recording([op("mm", 10, 20), op("mm", 30, 45), op("mm", 210, 211)], phases=phases), has_kernels=False
    )
    assert found == [
        OperatorRow("aten::mm", "matrix_product", "forward", 2, 25e-9, None, 0),
        OperatorRow("aten::mm", "matrix_product", "backward", 1, 1e-9, None, 0),
    ]


def test_everything_inside_attention_embedding_or_loss_belongs_to_it() -> None:
    found = classes(
        recording(
            [
                op("scaled_dot_product_attention", 0, 100),
                op("bmm", 10, 50),
                op("copy_", 20, 30),
                op("embedding", 100, 200),
                op("index_select", 110, 150),
                op("cross_entropy_loss", 200, 300),
                op("sum", 210, 220),
                op("mm", 300, 310),
            ]
        )
    )
    assert found == {
        "scaled_dot_product_attention": "attention",
        "bmm": "attention",
        "copy_": "attention",
        "embedding": "embedding",
        "index_select": "embedding",
        "cross_entropy_loss": "loss",
        "sum": "loss",
        "mm": "matrix_product",
    }


def test_an_operator_without_a_class_belongs_to_the_one_around_it() -> None:
    found = classes(
        recording(
            [
                op("sum", 0, 100),
                op("view", 10, 20),
                op("empty", 12, 15),
                op("copy_", 30, 40),
                op("detach", 200, 210),
            ]
        )
    )
    assert found == {
        "sum": "reduction",
        "view": "reduction",
        "empty": "reduction",
        "copy_": "copy",
        "detach": "other",
    }


def test_clip_noise_and_optimizer_own_whatever_runs_in_them() -> None:
    phases = [
        Span("forward", 0, 99),
        Span("clip", 100, 199),
        Span("noise", 200, 299),
        Span("optimizer_step", 300, 399),
    ]
    operators = [op("mul", start, start + 10) for start in (50, 150, 250, 350, 450)]
    found = account(recording(operators, phases=phases), has_kernels=False)
    assert {row.phase: row.operator_class for row in found} == {
        "forward": "elementwise",
        "clip": "norm_clip",
        "noise": "noise",
        "optimizer_step": "optimizer",
        None: "elementwise",
    }


def test_allocations_go_to_the_innermost_operator_and_frees_do_not_count() -> None:
    operators = [op("linear", 100, 200), op("addmm", 120, 160), op("empty", 130, 140)]
    allocations = [
        Allocation(90, 1, thread=1),
        Allocation(100, 10, thread=1),
        Allocation(125, 100, thread=1),
        Allocation(130, 1_000, thread=1),
        Allocation(135, -500, thread=1),
        Allocation(139, 2_000, thread=1),
        Allocation(150, 200, thread=1),
        Allocation(199, 20, thread=1),
        Allocation(201, 2, thread=1),
        Allocation(135, 7, thread=2),
    ]
    found = rows(recording(operators, allocations))
    assert {name: row.allocated for name, row in found.items()} == {
        "linear": 10 + 20,
        "addmm": 100 + 200,
        "empty": 1_000 + 2_000,
        "(outside operators)": 1 + 2 + 7,
    }


def test_operators_outside_steps_are_left_out() -> None:
    steps = [Span("training_step", 100, 200), Span("training_step", 300, 400)]
    operators = [op("mm", 50, 60), op("bmm", 150, 160), op("add", 250, 260), op("sum", 350, 360)]
    allocations = [Allocation(55, 1, 1), Allocation(155, 2, 1), Allocation(255, 4, 1)]
    found = rows(recording(operators, allocations, steps=steps))
    assert {name: row.allocated for name, row in found.items()} == {"bmm": 2, "sum": 0}


def test_threads_do_not_nest_in_each_other() -> None:
    operators = [op("linear", 0, 100, thread=1), op("mm", 10, 30, thread=2), op("add", 40, 50, thread=1)]
    allocations = [Allocation(20, 8, thread=1), Allocation(21, 16, thread=2)]
    found = rows(recording(operators, allocations))
    assert {name: (round(1e9 * row.self_s), row.allocated) for name, row in found.items()} == {
        "linear": (90, 8),
        "mm": (20, 16),
        "add": (10, 0),
    }


def test_kernel_times_are_added_up_where_they_were_traced_and_absent_elsewhere() -> None:
    operators = [
        op("linear", 0, 50),
        op("mm", 10, 20, kernel_ns=300),
        op("mm", 30, 40, kernel_ns=200),
        op("add", 60, 70, kernel_ns=100),
    ]
    traced = rows(recording(operators), has_kernels=True)
    assert {name: row.device_self_s for name, row in traced.items()} == {
        "linear": 0.0,
        "mm": pytest.approx(500e-9),
        "add": pytest.approx(100e-9),
    }
    assert {row.device_self_s for row in rows(recording(operators)).values()} == {None}


def test_rows_are_sorted_by_self_time() -> None:
    host = recording([op("linear", 0, 100), op("mm", 5, 65), op("add", 70, 75), op("sum", 200, 290)])
    assert list(rows(host)) == ["sum", "mm", "linear", "add"]
    kernels = recording([op("mm", 0, 5, kernel_ns=300), op("add", 10, 90, kernel_ns=200)])
    assert list(rows(kernels, has_kernels=True)) == ["mm", "add"]


# A nest of operators: each works for some ns, then again for as long after each operator inside it.
Nest = tuple[int, list["Nest"]]


NESTS: st.SearchStrategy[list[Nest]] = st.lists(
    st.recursive(
        st.tuples(st.integers(0, 30), st.just([])),
        lambda inner: st.tuples(st.integers(0, 30), st.lists(inner, max_size=4)),
        max_leaves=12,
    ),
    max_size=4,
)


@settings(deadline=None)
@given(NESTS, NESTS)
def test_self_times_and_allocations_of_any_nest(first: list[Nest], second: list[Nest]) -> None:
    operators: list[Operator] = []
    allocations: list[Allocation] = []
    expected: dict[str, tuple[int, int]] = {}
    numbers = count()

    def lay_out(nest: Nest, start: int, thread: int) -> int:
        """Put a nest at a time; returns its end. Each ns of an operator's own work allocates a byte."""
        own, inner = nest
        name = f"op{next(numbers)}"
        place = len(operators)
        at = work(own, start, thread)
        for child in inner:
            at = work(own, lay_out(child, at, thread), thread)
        operators.insert(place, op(name, start, at, thread))
        expected[name] = (own * (1 + len(inner)), own * (1 + len(inner)))
        return at

    def work(own: int, at: int, thread: int) -> int:
        allocations.extend(Allocation(moment, 1, thread) for moment in range(at, at + own))
        allocations.extend(Allocation(moment, -1, thread) for moment in range(at, at + own, 7))
        return at + own

    outermost = outside = 0
    for thread, nests in enumerate((first, second)):
        at = 5
        for nest in nests:
            end = lay_out(nest, at, thread)
            outermost += end - at
            allocations.append(Allocation(end, 1_000, thread))
            outside += 1_000
            at = end + 1
    if outside:
        expected["(outside operators)"] = (0, outside)

    allocations.sort(key=lambda a: a.at)
    found = rows(recording(operators, allocations, steps=[Span("training_step", 0, 10**9)]))
    assert {name: (round(1e9 * r.self_s), r.allocated) for name, r in found.items()} == expected
    assert sum(self_s for self_s, _ in expected.values()) == outermost


def test_allocations_outside_any_operator_are_kept_apart() -> None:
    """As `copy.deepcopy` of a gradient makes them: by phase, in the phase's class where it has one."""
    recording = Recording(
        steps=[Span("training_step", 0, 100)],
        phases=[Span("forward", 0, 40), Span("clip", 50, 90)],
        marks=[],
        operators=[Operator("aten::mm", 10, 20, 1)],
        allocations=[
            Allocation(15, 1, 1), Allocation(30, 10, 1), Allocation(60, 100, 1), Allocation(70, 1000, 2),
            Allocation(200, 10_000, 1),
        ],
    )  # fmt: skip
    rows = {(r.name, r.operator_class, r.phase): r.allocated for r in account(recording, has_kernels=False)}
    assert rows == {
        ("aten::mm", "matrix_product", "forward"): 1,
        ("(outside operators)", "other", "forward"): 10,
        ("(outside operators)", "norm_clip", "clip"): 1100,
    }

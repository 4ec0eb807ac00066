"""The operators' rows of a trace, and the small trace that is kept."""

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from example_runs import known
from hypothesis import given
from hypothesis import strategies as st
from shown_comparison import RUNS
from torch_tb_profiler.profiler.data import RunProfileData  # type: ignore[import-untyped]
from torch_tb_profiler.profiler.module_op import aggegate_module_view  # type: ignore[import-untyped]

from dpprof.json_files import read_json
from dpprof.measure.passes.events import Allocation, Operator, Recording, Span
from dpprof.measure.passes.trace import MOST_EQUAL_CALLS, operator_rows, slim
from dpprof.record.folder import RunFolder
from dpprof.record.record import OperatorRow

STEP = Span("training_step", 0, 1_000)


def recording(
    operators: Iterable[Operator],
    allocations: Sequence[Allocation] = (),
    phases: Sequence[Span] = (),
    steps: Sequence[Span] = (STEP,),
) -> Recording:
    in_order = sorted(operators, key=lambda o: (o.start, -o.end))
    return Recording(list(steps), list(phases), in_order, list(allocations))


def op(name: str, start: int, end: int, thread: int = 1, kernel_ns: int = 0) -> Operator:
    return Operator(f"aten::{name}", start, end, thread, kernel_ns)


def rows(recording: Recording, *, has_kernels: bool = False) -> dict[str, OperatorRow]:
    found = operator_rows(recording, has_kernels=has_kernels)
    assert len({row.name for row in found}) == len(found)
    return {row.name.removeprefix("aten::"): row for row in found}


def test_calls_of_one_operator_in_one_phase_are_one_row() -> None:
    phases = [Span("forward", 0, 100), Span("backward", 200, 300)]
    found = operator_rows(
        recording([op("mm", 10, 20), op("mm", 30, 45), op("mm", 210, 211)], phases=phases), has_kernels=False
    )
    assert found == [
        OperatorRow("aten::mm", "matrix_product", "forward", 2, 25e-9, None, 0),
        OperatorRow("aten::mm", "matrix_product", "backward", 1, 1e-9, None, 0),
    ]


OUTER = [("scaled_dot_product_attention", 0, 100), ("embedding", 100, 200), ("cross_entropy_loss", 200, 300)]
INNER = [("bmm", 10, 50), ("copy_", 20, 30), ("index_select", 110, 150), ("sum", 210, 220), ("mm", 300, 310)]
NESTED = [("sum", 0, 100), ("view", 10, 20), ("empty", 12, 15), ("copy_", 30, 40), ("detach", 200, 210)]


@pytest.mark.parametrize(
    ("calls", "classes"),
    [
        # Everything inside attention, an embedding or a loss belongs to it.
        (OUTER + INNER, "attention embedding loss attention attention embedding loss matrix_product"),
        # An operator without a class belongs to the one around it.
        (NESTED, "reduction reduction reduction copy other"),
    ],
)
def test_the_class_of_an_operator_inside_others(calls: list[tuple[str, int, int]], classes: str) -> None:
    found = {name: row.operator_class for name, row in rows(recording(op(*call) for call in calls)).items()}
    assert found == dict(zip((name for name, _, _ in calls), classes.split(), strict=True))


def test_clip_noise_and_optimizer_own_whatever_runs_in_them() -> None:
    names = ("forward", "clip", "noise", "optimizer_step")
    phases = [Span(name, 100 * i, 100 * i + 99) for i, name in enumerate(names)]
    operators = [op("mul", start, start + 10) for start in (50, 150, 250, 350, 450)]
    found = operator_rows(recording(operators, phases=phases), has_kernels=False)
    assert {row.phase: row.operator_class for row in found} == {
        "forward": "elementwise",
        "clip": "norm_clip",
        "noise": "noise",
        "optimizer_step": "optimizer",
        None: "elementwise",
    }


def test_operators_outside_steps_are_left_out() -> None:
    steps = [Span("training_step", 100, 200), Span("training_step", 300, 400)]
    operators = [op("mm", 50, 60), op("bmm", 150, 160), op("add", 250, 260), op("sum", 350, 360)]
    allocations = [Allocation(55, 1, 1), Allocation(155, 2, 1), Allocation(255, 4, 1)]
    found = rows(recording(operators, allocations, steps=steps))
    assert {name: row.allocated for name, row in found.items()} == {"bmm": 2, "sum": 0}


def test_rows_are_sorted_by_kernel_times_where_these_were_traced_and_by_self_times_elsewhere() -> None:
    operators = [
        op("linear", 0, 50),
        op("mm", 5, 25, kernel_ns=300),
        op("mm", 25, 45, kernel_ns=200),
        op("add", 60, 65, kernel_ns=100),
    ]
    traced, others = rows(recording(operators), has_kernels=True), rows(recording(operators))
    expected = {"mm": pytest.approx(500e-9), "add": pytest.approx(100e-9), "linear": 0.0}
    assert {name: row.device_self_s for name, row in traced.items()} == expected
    assert list(traced) == list(expected)
    assert list(others) == ["mm", "linear", "add"]
    assert {row.device_self_s for row in others.values()} == {None}


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


@given(NESTS, NESTS)
def test_self_times_and_allocations_of_any_nest(first: list[Nest], second: list[Nest]) -> None:
    operators: list[Operator] = []
    allocations: list[Allocation] = []
    expected: dict[str, int] = {}
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
        expected[name] = own * (1 + len(inner))
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
    allocations.sort(key=lambda a: a.at)
    found = rows(recording(operators, allocations, steps=[Span("training_step", 0, 10**9)]))
    assert sum(row.allocated for name, row in found.items() if name not in expected) == outside
    assert {name: round(1e9 * found[name].self_s) for name in expected} == expected
    assert {name: found[name].allocated for name in expected} == expected
    assert sum(expected.values()) == outermost


def test_allocations_outside_any_operator_are_kept_apart() -> None:
    """As `copy.deepcopy` of a gradient makes them: by phase, in the phase's class where it has one."""
    recording = Recording(
        steps=[Span("training_step", 0, 100)],
        phases=[Span("forward", 0, 40), Span("clip", 50, 90)],
        operators=[Operator("aten::mm", 10, 20, 1)],
        allocations=[
            Allocation(at, size, 2 if at == 70 else 1)
            for at, size in ((15, 1), (30, 10), (60, 100), (70, 1_000), (200, 10_000))
        ],
    )
    found = operator_rows(recording, has_kernels=False)
    assert {(row.name, row.operator_class, row.phase): row.allocated for row in found} == {
        ("aten::mm", "matrix_product", "forward"): 1,
        ("(outside operators)", "other", "forward"): 10,
        ("(outside operators)", "norm_clip", "clip"): 1100,
    }


Event = dict[str, Any]


def event(cat: str, name: str, ts: float, dur: float = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: float, own: int, parent: int | None) -> Event:
    return event("python_function", name, ts) | {"args": {"Python id": own, "Python parent id": parent}}


STEPS = [event("user_annotation", f"ProfilerStep#{n}", 1000 * n, 900) for n in (3, 4, 5)]


def kept(*events: Event) -> list[Event]:
    whole = {"schemaVersion": 1, "traceEvents": [*STEPS, *events]}
    found = slim(whole)
    assert found["schemaVersion"] == 1
    return [found for found in found["traceEvents"] if found["cat"] != "user_annotation"]


def test_the_last_step_stays_with_the_names_of_threads() -> None:
    thread = {"ph": "M", "cat": "", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}
    inside = [event("cpu_op", "aten::mm", 5000), event("cpu_op", "aten::add", 5900)]
    outside = [event("cpu_op", "aten::mm", at) for at in (3000, 4500, 4999, 5901)]
    assert kept(thread, *inside, *outside) == [thread, *inside]
    assert slim({"traceEvents": outside})["traceEvents"] == outside, "no step is marked"


def test_calls_within_torch_give_their_parent_to_what_they_call() -> None:
    found = kept(
        call("train.py(3): step", 5000, 1, None),
        call("nn.Module: Linear_0", 5001, 2, 1),
        call("torch/nn/modules/module.py(9): _call", 5002, 3, 2),
        call("<built-in method linear of type object at 0x1>", 5003, 4, 3),
        call("opacus/hooks.py(7): hook", 5004, 5, 4),
    )
    assert [(e["name"].split(" ")[0], e["args"]["Python parent id"]) for e in found] == [
        ("train.py(3):", None),
        ("nn.Module:", 1),
        ("opacus/hooks.py(7):", 2),
    ]


def test_of_many_equal_calls_the_first_stay_with_what_they_call() -> None:
    count = MOST_EQUAL_CALLS + 50
    unique = event("cpu_op", "aten::unique_dim", 5000, 800)
    after = event("cpu_op", "aten::mm", 5850)
    many = []
    for i in range(count):
        many.append(event("cpu_op", "aten::select", 5001 + i, 0.9))
        many.append(event("cpu_op", "aten::as_strided", 5001.2 + i, 0.1))
    assert kept(unique, *many, after) == [unique, *many[: 2 * MOST_EQUAL_CALLS], after]


def test_shapes_and_types_stay_and_links_only_where_there_are_kernels() -> None:
    args = {"Input Dims": [[2, 3]], "Input type": ["float"], "Ev Idx": 7, "External id": 9}
    operator = event("cpu_op", "aten::mm", 5000) | {"args": args}
    (alone,) = kept(operator)
    assert alone["args"] == {"Input Dims": [[2, 3]], "Input type": ["float"]}
    with_kernel, _ = kept(operator, event("kernel", "sgemm", 5001, **{"External id": 9}))
    assert with_kernel["args"]["External id"] == 9


@pytest.fixture
def traced(swept: Path) -> RunFolder:
    """A run of flat DP-SGD."""
    return RunFolder(swept / "runs" / "grid é" / RUNS[1])


def test_a_real_trace_shows_one_step_with_its_phases_operators_and_modules(traced: RunFolder) -> None:
    (path,) = traced.traces()
    assert path.stat().st_size < 250_000
    events = read_json(path)["traceEvents"]
    marks = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert [name for name in marks if name.startswith("ProfilerStep#")] == ["ProfilerStep#5"]
    phases = [name.removeprefix("phase:") for name in marks if name.startswith("phase:")]
    assert phases == ["zero_grad", "forward", "backward", "clip", "noise", "optimizer_step"]
    operators = [e for e in events if e.get("cat") == "cpu_op"]
    num_addmm = sum(e["name"] == "aten::addmm" for e in operators)
    record = known(traced.read_record())
    assert record.traced_steps == 3
    assert sum(row.calls for row in record.operators if row.name == "aten::addmm") == 3 * num_addmm
    assert all("Input Dims" in e["args"] for e in operators if e["name"] == "aten::addmm")
    assert [path.name for path in traced.tensorboard.glob("*.json")] == [], "the whole trace is gone"


def test_tensorboards_plugin_reads_it(traced: RunFolder, tmp_path: Path) -> None:
    (path,) = traced.traces()
    profile = RunProfileData.parse("worker", 1, str(path), str(tmp_path))
    assert profile.steps_names == ["5"]
    assert {operator.name for operator in profile.op_list_groupby_name} >= {"aten::addmm", "aten::einsum"}
    assert profile.memory_snapshot is not None
    (root,) = aggegate_module_view(profile.tid2tree, profile.events)
    assert root.name == "GradSampleModule_0", "no module lost its parent"

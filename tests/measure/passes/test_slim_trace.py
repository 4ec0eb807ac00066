"""What a small trace keeps, and whether TensorBoard's plugin still reads it."""

from pathlib import Path
from typing import Any

import pytest
from shown_comparison import RUNS
from torch_tb_profiler.profiler.data import RunProfileData  # type: ignore[import-untyped]
from torch_tb_profiler.profiler.module_op import aggegate_module_view  # type: ignore[import-untyped]

from dpprof.json_files import read_json
from dpprof.measure.passes.slim_trace import MOST_EQUAL_CALLS, slim
from dpprof.record.folder import RunFolder

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


def test_a_trace_without_marked_steps_stays_whole() -> None:
    events = [event("cpu_op", "aten::mm", at) for at in (1, 2000)]
    assert slim({"traceEvents": events})["traceEvents"] == events


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
    record = traced.read_record()
    assert record is not None
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

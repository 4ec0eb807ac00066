"""A phase may have any name: in the trace, in MLflow, in tables and on pages."""

import gzip
import json
from pathlib import Path

import mlflow
import torch
from conftest import runs_of
from example_runs import known
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name  # what MLflow itself asks

import dpprof
from dpprof.record.figures.names import key_of
from dpprof.record.record import PassStatus
from dpprof.vocabulary.phases import PHASES, label_of, phase_of

ODD = [
    "fwd+bwd",
    "(",
    "a & b",
    "<b>bold</b>",
    '"',
    "'",
    "back\\slash",
    "100 %",
    "%41",
    "a/b",
    "..",
    "/",
    "größe",
    "\N{DIE FACE-1}",
    "[red]",
    "line\nbreak",
    "step",
    "total",
    "communication",
    "class",
    "x" * 150,
]


@given(st.text(), st.text())
def test_metric_names_suit_mlflow_and_tell_phases_apart(one: str, other: str) -> None:
    for name in (f"io/{key_of(one)}/read_mib", f"latency/{key_of(one)}_ms"):
        _validate_metric_name(name)
    assert (key_of(one) == key_of(other)) == (one == other)
    assert phase_of(label_of(one)) == one
    assert json.loads(f'"{label_of(one)}"') == label_of(one)


def test_names_of_phases_stay_as_they_are() -> None:
    assert [key_of(phase) for phase in PHASES] == list(PHASES)
    assert [phase_of(label_of(phase)) for phase in PHASES] == list(PHASES)
    assert phase_of("training_step") is None


def test_a_run_with_odd_phases_is_measured_and_logged(mlflow_store: Path, tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(64))
    optimizer = torch.optim.SGD([weight])
    with mlflow.start_run(), dpprof.profile(warmup_steps=1, measured_steps=1, mlflow="nested") as prof:
        for _ in range(12):
            for number, name in enumerate(ODD):
                with dpprof.phase(name):
                    (weight[: number + 1] * 2).sum().backward()
            with dpprof.phase(""), dpprof.phase(7):  # type: ignore[arg-type]
                optimizer.step()
            prof.step()
    record = known(prof.result.record)
    assert {one.status for one in record.passes.values()} == {PassStatus.FINISHED}, record.passes
    assert record.phase_s.keys() == {*ODD, "unnamed"}
    logged = runs_of(mlflow_store)[prof.result.name].data.metrics
    for name in ODD:
        assert logged[f"latency/{key_of(name)}_ms"] == prof.figures[f"latency/{key_of(name)}_ms"]
        assert f"memory/peak_in_{key_of(name)}_mib" in logged
    (trace,) = prof.result.folder.tensorboard.glob("*.trace.json.gz")
    names = {event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {label_of(name) for name in ODD} <= names
    assert "<b>" not in prof._repr_html_().partition("<iframe")[2].replace("&lt;b", "")
    prof.show()

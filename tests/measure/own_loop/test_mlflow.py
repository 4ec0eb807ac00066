"""A measured loop in MLflow, under the user's active run or in it; there phases may have any name."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from conftest import artifacts_of, call_dpprof, runs_of
from example_runs import known
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name  # what MLflow itself asks

import dpprof
from dpprof.errors import ConfigError
from dpprof.record.figures.names import key_of
from dpprof.record.link import Link
from dpprof.record.record import PassStatus
from dpprof.tracking.store import Store
from dpprof.vocabulary.phases import PHASES, label_of, phase_of

STEPS = 3 + 2 + 4 + 6  # warm-up, clean, ledger, trace
PEAK = "memory/peak_allocated_mib"


def train(prof: Any) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).sum().backward()
        optimizer.step()
        prof.step()


def test_a_nested_run_lies_under_the_active_one(mlflow_store: Path) -> None:
    with mlflow.start_run(experiment_id=mlflow.create_experiment("mine")) as own:
        before = dict(os.environ)
        with dpprof.profile(measured_steps=2, mlflow="nested") as prof:
            train(prof)
        changed = {name for name, _ in os.environ.items() ^ before.items()}
        assert not any(name.startswith("MLFLOW_") for name in changed)
        assert known(mlflow.active_run()).info.run_id == own.info.run_id
    assert {experiment.name for experiment in mlflow.search_experiments()} == {"Default", "mine"}
    run = runs_of(mlflow_store)[prof.result.name]
    assert run.data.tags["mlflow.parentRunId"] == own.info.run_id
    assert run.info.experiment_id == own.info.experiment_id
    assert run.info.status == "FINISHED"
    assert run.data.metrics[PEAK] == pytest.approx(prof.figures[PEAK])
    assert "record.json" in artifacts_of(mlflow_store, run)
    assert mlflow.get_run(own.info.run_id).data.metrics == {}


def test_the_active_run_gets_it_and_keeps_its_own(mlflow_store: Path) -> None:
    own = {"mlflow.note.content": "mine", "mlflow.source.name": "train.py", "mlflow.runColor": "#123456"}
    with mlflow.start_run(run_name="mine", tags=own) as active:
        mlflow.log_dict({"of": "mine"}, "config.json")
        with dpprof.profile(measured_steps=2, mlflow="active") as prof:
            train(prof)
        mlflow.log_params({"batch_size": 64, "trainer": "mine"})
        run = mlflow.get_run(active.info.run_id)
        assert run.info.status == "RUNNING"
    assert own.items() <= run.data.tags.items()
    assert run.info.run_name == "mine"
    assert run.data.params["dpprof.batch_size"] == "8"
    assert run.data.metrics[PEAK] == pytest.approx(prof.figures[PEAK])
    assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/config.json") == {"of": "mine"}
    assert "dpprof/record.json" in artifacts_of(mlflow_store, run, "dpprof")
    call_dpprof(mlflow_store, "log", str(prof.result.folder.path))
    assert len(runs_of(mlflow_store)) == 1


@pytest.mark.parametrize("how", ["nested", "active"])
def test_without_an_active_run_nothing_starts(how: Any, mlflow_store: Path) -> None:
    prof = dpprof.profile(mlflow=how)
    with pytest.raises(ConfigError, match=rf"mlflow: got '{how}'.*mlflow\.start_run\(\)"), prof:
        pytest.fail("the loop started")
    with pytest.raises(ConfigError, match="mlflow: got 'child', allowed: nested, active or None"):
        dpprof.profile(mlflow="child")  # type: ignore[arg-type]


def test_a_failure_keeps_the_folder_and_the_users_run(
    mlflow_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logging the folder again leaves the user's run alone, which MLflow took a part of."""
    ask, uploads = Store.ask, 0

    def full(self: Store, call: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal uploads
        uploads += call.__name__ == "log_artifact"
        if uploads > 1:
            raise OSError("no space left")
        return ask(self, call, *args, **kwargs)

    with mlflow.start_run() as active, monkeypatch.context() as patched:
        patched.setattr(Store, "ask", full)
        with dpprof.profile(measured_steps=2, mlflow="active") as prof:
            train(prof)
    folder = prof.result.folder
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dpprof:")]
    assert said == [f"dpprof: not in MLflow (no space left); to log it: dpprof log {folder.path}"]
    call_dpprof(mlflow_store, "log", str(folder.path))
    assert known(Link.read(folder.mlflow)).run_id != active.info.run_id
    assert mlflow.get_run(active.info.run_id).info.lifecycle_stage == "active"


def test_mlflow_is_not_imported_unless_asked(tmp_path: Path) -> None:
    program = """
import sys, torch, dpprof
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
with dpprof.profile(measured_steps=2) as prof:
    for _ in range(20):
        weight.sum().backward()
        optimizer.step()
        prof.step()
assert prof.is_complete
print("mlflow" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


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
]
ODD += ["\N{DIE FACE-1}", "[red]", "line\nbreak", "step", "total", "communication", "class", "x" * 150]


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

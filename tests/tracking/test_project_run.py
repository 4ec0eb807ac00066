"""The run that `mlflow run` made: taken, or left for one in dpprof's own experiment."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from dpprof.record.folder import SweepFolder
from dpprof.tracking.tracker import Tracker

MADE_BY_MLFLOW = {"mlflow.project.entryPoint": "sweep", "mlflow.user": "me", "mlflow.source.type": "PROJECT"}


def given_run(monkeypatch: pytest.MonkeyPatch, experiment: str, tags: dict[str, str]) -> Run:
    run = MlflowClient().create_run(experiment, tags=tags, run_name="clean-sloth-374")
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    return run


def start_parent() -> Run:
    tracker = Tracker()
    tracker.open()
    run_id = tracker.start_parent("grid", "sweep", {"lr": 0.01}, SweepFolder(Path("runs/grid")))
    return MlflowClient().get_run(run_id)


def test_in_default_it_is_left_and_points_to_the_one_in_dpprof(
    mlflow_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient()
    given = given_run(monkeypatch, "0", MADE_BY_MLFLOW)
    parent = start_parent()
    assert client.get_experiment(parent.info.experiment_id).name == "dpprof"
    assert parent.data.tags.items() >= MADE_BY_MLFLOW.items()
    assert parent.info.run_name == "grid"
    left = client.get_run(given.info.run_id)
    assert left.info.run_name == "grid is in dpprof"
    assert f"runs/{parent.info.run_id}" in left.data.tags["mlflow.note.content"]
    assert left.info.lifecycle_stage == "active", "`mlflow run` has yet to set its status"


@pytest.mark.parametrize("told_by", ["experiment", "name", "no project"])
def test_where_the_user_chose_the_experiment_it_is_taken(
    mlflow_store: Path, monkeypatch: pytest.MonkeyPatch, told_by: str
) -> None:
    experiment = MlflowClient().create_experiment("mine") if told_by == "experiment" else "0"
    given = given_run(monkeypatch, experiment, MADE_BY_MLFLOW if told_by != "no project" else {})
    if told_by == "name":
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "Default")
    MlflowClient().log_param(given.info.run_id, "lr", "1e-2")
    parent = start_parent()
    assert parent.info.run_id == given.info.run_id
    assert (parent.info.run_name, parent.data.params) == ("grid", {"lr": "1e-2"})

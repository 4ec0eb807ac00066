import shutil
from pathlib import Path

import mlflow
import pytest
from conftest import runs_of
from mlflow import MlflowClient

from dpprof.errors import ConfigError, TrackingError
from dpprof.tracking.fetch import fetch
from dpprof.tracking.store import PARENT_TAG

GHOST = "DPGhostClippingTrainer_tiny_bs2_seq16"
NEEDED = {"config.json", "record.json", "ledger.json.gz"}


@pytest.fixture
def store(swept: Path, tmp_path: Path, request: pytest.FixtureRequest) -> MlflowClient:
    """A copy of the real sweep's store, whose artifacts stay where they are."""
    shutil.copy(swept / "mlflow.db", tmp_path / "mlflow.db")
    request.getfixturevalue("mlflow_store")
    return MlflowClient()


def test_of_each_run_only_the_small_files_come(store: MlflowClient, swept: Path, tmp_path: Path) -> None:
    found = fetch("grid é", tmp_path / "in")
    assert found is not None
    source, folders = found
    assert source == "grid é"
    runs = runs_of(swept)
    # Where `mlflow run` made the sweep, its own run is left in the experiment Default.
    children = {name for name, run in runs.items() if PARENT_TAG in run.data.tags}
    assert sorted(name for name, _ in folders) == sorted(children)
    assert len(children) == 4
    for name, folder in folders:
        assert {path.name for path in folder.path.iterdir()} == NEEDED
        original = swept / "runs" / "grid é" / name / "record.json"
        assert folder.record.read_bytes() == original.read_bytes()
        assert folder.name == runs[name].info.run_id


@pytest.mark.parametrize(
    "name", ["ghost b2 s16", "grid é/ghost b2 s16", GHOST, f"grid é/{GHOST}"], ids=lambda name: str(name)
)
def test_a_run_is_found_by_either_of_its_names(store: MlflowClient, tmp_path: Path, name: str) -> None:
    found = fetch(name, tmp_path / "in")
    assert found is not None
    source, [(full_name, _)] = found
    assert (source, full_name) == ("grid é", GHOST)


def test_a_run_of_several_sweeps_is_found_by_its_sweep(store: MlflowClient, tmp_path: Path) -> None:
    run = runs_of(tmp_path)[GHOST]
    other = store.create_run(run.info.experiment_id, run_name="other", tags={"dpprof.kind": "sweep"})
    tags = {"dpprof.kind": "experiment", "mlflow.parentRunId": other.info.run_id}
    store.create_run(run.info.experiment_id, run_name="ghost b2 s16", tags=tags)
    with pytest.raises(ConfigError, match="give SWEEP/NAME"):
        fetch("ghost b2 s16", tmp_path / "in")
    found = fetch("grid é/ghost b2 s16", tmp_path / "in")
    assert found is not None
    assert found[1][0][0] == GHOST


def test_nothing_is_fetched_of_what_the_store_does_not_have(store: MlflowClient, tmp_path: Path) -> None:
    assert fetch("no such sweep", tmp_path / "in") is None
    assert fetch("0" * 32, tmp_path / "in") is None
    assert not (tmp_path / "in").exists()


def test_a_store_that_is_not_there_is_not_made(mlflow_store: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{mlflow_store}/none.db")
    assert fetch("x", mlflow_store / "in") is None
    assert [path.name for path in mlflow_store.iterdir()] == ["mlflow.db"]


def test_a_name_that_several_runs_have_is_refused_with_their_ids(store: MlflowClient, tmp_path: Path) -> None:
    first = next(iter(runs_of(tmp_path).values())).info.experiment_id
    other = store.create_experiment("other")
    ids = [
        store.create_run(where, run_name="it's", tags={"dpprof.kind": "sweep"}).info.run_id
        for where in (first, other)
    ]
    with pytest.raises(ConfigError, match="2 runs in MLflow are named") as refused:
        fetch("it's", tmp_path / "in")
    assert all(run_id in str(refused.value) for run_id in ids)
    store.delete_run(ids[0])
    assert fetch("it's", tmp_path / "in") == ("it's", [])
    with pytest.raises(ConfigError, match="no escape"):
        fetch('it\'s "quoted"', tmp_path / "in")


def test_a_run_of_another_program_is_none_of_ours(store: MlflowClient, tmp_path: Path) -> None:
    run = store.create_run("0", run_name="foreign", tags={"dpprof.kind": "experiment"})
    with pytest.raises(ConfigError, match="not one of dpprof's"):
        fetch(run.info.run_id, tmp_path / "in")
    store.create_run("0", run_name="stranger")
    assert fetch("stranger", tmp_path / "in") is None


def test_a_server_that_does_not_answer_is_a_tracking_error(
    mlflow_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpprof.tracking.store._PAUSES_S", (0.01,) * 5)
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"http://127\.0\.0\.1:9"):
        fetch("x", mlflow_store / "in")

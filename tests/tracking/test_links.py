"""Which run holds a folder, in a real store."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from example_logged import laid_out
from mlflow import MlflowClient

from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.tracking.tracker import Tracker


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def folder(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The test's own, with an experiment of its own in the store that the tests share."""
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", request.node.name)
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(uri)
    yield tmp_path
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def opened() -> Tracker:
    tracker = Tracker()
    tracker.open()
    return tracker


def copied(result: Result, sweep: Path) -> Result:
    shutil.copytree(result.folder.path, sweep / result.name)
    return read_result(RunFolder(sweep / result.name))


def change_link(run_folder: RunFolder, **values: object) -> None:
    run_folder.mlflow.write_text(json.dumps(json.loads(run_folder.mlflow.read_text()) | values))


def test_a_copy_counts_as_the_original(folder: Path) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {"dpprof.sweep": "a"})
    copy = copied(result, folder / "b")
    assert opened().log_result(copy, {"dpprof.sweep": "b"}) == first
    copy.folder.mlflow.unlink()
    assert opened().log_result(copy, {}) != first


def test_a_moved_folder_keeps_its_run(folder: Path) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {})
    (folder / "a").rename(folder / "b")
    moved = read_result(RunFolder(folder / "b" / result.name))
    assert opened().log_result(moved, {}) == first


def test_a_half_written_run_is_replaced(folder: Path) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {})
    change_link(result.folder, complete=False)
    second = opened().log_result(result, {})
    assert second != first
    assert MlflowClient().get_run(first).info.lifecycle_stage == "deleted"


def test_a_run_with_another_id_is_left_alone(folder: Path) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {})
    MlflowClient().set_tag(first, "dpprof.link_id", "of another folder")
    change_link(result.folder, complete=False)
    assert opened().log_result(result, {}) != first
    assert MlflowClient().get_run(first).info.lifecycle_stage == "active"

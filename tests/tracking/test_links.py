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
from dpprof.record.folder import RunFolder, SweepFolder
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


@pytest.mark.parametrize("complete", [True, False])
def test_a_copied_folder_leaves_the_originals_run_alone(folder: Path, complete: bool) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {"dpprof.sweep": "a"})
    copy = copied(result, folder / "b")
    change_link(copy.folder, complete=complete)
    second = opened().log_result(copy, {"dpprof.sweep": "b"})
    assert second != first
    run = MlflowClient().get_run(first)
    assert (run.info.lifecycle_stage, run.data.tags["dpprof.sweep"]) == ("active", "a")
    assert opened().log_result(copy, {}) == second
    assert opened().log_result(result, {}) == first


def test_a_copied_sweep_gets_a_parent_of_its_own(folder: Path) -> None:
    first = opened().start_parent("a", "sweep", {}, SweepFolder(folder / "a"))
    shutil.copytree(folder / "a", folder / "b")
    second = opened().start_parent("b", "sweep", {}, SweepFolder(folder / "b"))
    assert second != first
    assert MlflowClient().get_run(first).data.tags["dpprof.sweep"] == "a"
    assert opened().start_parent("a", "sweep", {}, SweepFolder(folder / "a")) == first


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


@pytest.mark.parametrize(("sweep", "is_held"), [("a", True), ("b", False)])
def test_a_link_of_an_earlier_version_holds_for_the_names(folder: Path, sweep: str, is_held: bool) -> None:
    result = laid_out(folder / "a")
    first = opened().log_result(result, {"dpprof.sweep": "a"})
    MlflowClient().delete_tag(first, "dpprof.link_id")
    earlier = {"run_id": first, "tracking_uri": mlflow.get_tracking_uri(), "complete": False}
    other = result if sweep == "a" else copied(result, folder / "b")
    other.folder.mlflow.write_text(json.dumps(earlier))
    assert opened().log_result(other, {}) != first
    stage = MlflowClient().get_run(first).info.lifecycle_stage
    assert stage == ("deleted" if is_held else "active")

"""A real MLflow server that fails while runs are logged; `test_matrix.py` tries whole sweeps."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
from conftest import environment
from example_logged import laid_out
from example_runs import known
from faulty_proxy import HANG, LOST, Fault, FaultyProxy
from mlflow import MlflowClient
from mlflow_server import MlflowServer

from dpprof.errors import TrackingError
from dpprof.record.figures.results import Result
from dpprof.record.folder import SweepFolder
from dpprof.tracking.tracker import Summary, Tracker

STANDARD = "standard b2 s16 tiny"
LATE = "did not answer within"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    made = MlflowServer(tmp_path_factory.mktemp("store") / "server")
    made.start()
    yield made
    made.close()


class FaultyStore(FaultyProxy):
    """The server behind a proxy, with an experiment, and the client that sees it as it is."""

    def __init__(self, port: int, experiment: str) -> None:
        super().__init__(port)
        self.experiment, self.client = experiment, MlflowClient(f"http://127.0.0.1:{port}")

    def statuses(self) -> dict[str, str]:
        """The status of every run by its name."""
        experiment = known(self.client.get_experiment_by_name(self.experiment))
        runs = [run.info for run in self.client.search_runs([experiment.experiment_id])]
        statuses = {info.run_name: info.status for info in runs}
        assert len(statuses) == len(runs), "a run was made twice"
        return statuses

    def refusal(self, said: str, call: Callable[[], object], *faults: Fault) -> str:
        """What an error says of a call while the store has these faults."""
        self.faults = [*faults]
        with pytest.raises(TrackingError, match=said) as refused:
            call()
        return str(refused.value)


@pytest.fixture
def store(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[FaultyStore]:
    """An experiment of the test's own. The store is asked again without a pause."""
    monkeypatch.setattr("dpprof.tracking.store._PAUSES_S", (0.01,) * 5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", request.node.name)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    proxy = FaultyStore(server.port, request.node.name)
    mlflow.set_tracking_uri(proxy.uri)
    yield proxy
    proxy.close()
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """A run folder to log."""
    return laid_out(tmp_path / "grid")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path / "grid")


def opened() -> Tracker:
    tracker = Tracker()
    tracker.open()
    return tracker


def log(result: Result) -> str:
    """Log a folder by itself, and return its run's id."""
    return opened().log_result(result, {})


def test_a_parent_that_cannot_be_reopened_is_not_made_again(store: FaultyStore, sweep: SweepFolder) -> None:
    def begin() -> str:
        return opened().start_parent("grid", "sweep", {}, sweep)

    first = begin()
    store.refusal("500", begin, Fault("runs/update", "500", times=99))
    store.faults = [Fault("runs/update", "500", times=2)]
    assert begin() == first
    assert store.statuses() == {"grid": "RUNNING"}


def test_a_folder_is_not_logged_twice_by_a_store_that_cannot_tell(store: FaultyStore, result: Result) -> None:
    first = log(result)
    store.refusal("503", lambda: log(result), Fault("runs/get", "503", times=99))
    store.faults = [Fault("runs/get", "503", times=2)]
    assert log(result) == first
    assert store.statuses() == {STANDARD: "FINISHED"}


@pytest.mark.parametrize("path", ["experiments/create", "runs/create", "runs/log-batch"])
def test_a_lost_answer_makes_nothing_twice(store: FaultyStore, sweep: SweepFolder, path: str) -> None:
    store.faults = [Fault(path, LOST)]
    tracker = opened()
    parent = tracker.start_parent("grid", "sweep", {"a": 1}, sweep)
    store.faults.append(Fault(path, LOST))
    run_id = tracker.log_result(laid_out(sweep.path), {}, parent)
    tracker.finish_parent(parent, "FINISHED", Summary("said"))
    assert store.statuses() == {"grid": "FINISHED", STANDARD: "FINISHED"}
    history = store.client.get_metric_history(run_id, "latency/step_ms_median")
    assert [metric.value for metric in history] == [500.0]


@pytest.mark.parametrize(("path", "kind"), [("artifacts", "507"), ("runs/log-batch", "403")])
def test_a_run_that_cannot_be_logged_is_closed_and_logged_anew_later(
    store: FaultyStore, result: Result, path: str, kind: str
) -> None:
    store.refusal(kind, lambda: log(result), Fault(path, kind, times=99))
    assert store.statuses() == {STANDARD: "FAILED"}
    store.faults = []
    run_id = log(result)
    assert store.statuses() == {STANDARD: "FINISHED"}
    assert store.client.get_run(run_id).data.metrics["latency/step_ms_median"] == 500.0


def test_a_parent_whose_files_are_refused_is_closed(store: FaultyStore, sweep: SweepFolder) -> None:
    tracker = opened()
    parent = tracker.start_parent("grid", "sweep", {}, sweep)
    page = sweep.path.with_name("page.html")
    page.write_text("x")
    summary = Summary("said", [page])
    fault = Fault("artifacts", "507", times=99)
    store.refusal("MLflow", lambda: tracker.finish_parent(parent, "FINISHED", summary), fault)
    assert store.statuses() == {"grid": "FAILED"}


def test_after_a_time_out_nothing_more_is_sent(
    store: FaultyStore, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = opened()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    fault = Fault("runs/create", HANG, times=99)
    began = time.monotonic()
    store.refusal(LATE, lambda: tracker.log_result(result, {}), fault)
    assert time.monotonic() - began < 6
    num = len(store.requests)
    store.refusal(LATE, lambda: tracker.log_result(result, {}), fault)
    assert len(store.requests) == num


def test_a_folder_whose_run_was_not_heard_of_is_found_again(
    store: FaultyStore, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is made, and the answer never comes."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    store.refusal(LATE, lambda: log(result), Fault("runs/create", LOST), Fault("runs/search", HANG))
    assert store.statuses() == {STANDARD: "RUNNING"}
    log(result)
    assert store.statuses() == {STANDARD: "FINISHED"}


def test_no_password_is_written_or_said(store: FaultyStore, result: Result, tmp_path: Path) -> None:
    mlflow.set_tracking_uri(store.uri.replace("//", "//me:hunter2@"))
    log(result)
    shutil.copytree(result.folder.path, tmp_path / "other" / result.name)
    assert "hunter2" not in result.folder.mlflow.read_text()
    result.folder.mlflow.unlink()
    refused = Fault("runs/log-batch", "507", times=99)
    assert "hunter2" not in store.refusal("MLflow", lambda: log(result), refused)
    mlflow.set_tracking_uri("http://me:hunter2@127.0.0.1:9")
    assert "hunter2" not in store.refusal("MLflow", opened)


@pytest.mark.parametrize(
    "path", [pytest.param("runs/create", marks=pytest.mark.exhaustive), "runs/log-batch"]
)
def test_ctrl_c_while_the_store_hangs_ends_at_once(
    store: FaultyStore, tmp_path: Path, path: str, request: pytest.FixtureRequest
) -> None:
    """While the parent is opened, and while a run is logged; under `mlflow run`."""
    laid_out(tmp_path / "runs" / "grid")
    project = {"mlflow.project.entryPoint": "log"}
    given = store.client.create_run("0", tags=project, run_name=request.node.name).info.run_id
    store.faults = [Fault(path, HANG, after=0 if "create" in path else 2)]
    of_mlflow = {"TRACKING_URI": store.uri, "RUN_ID": given, "EXPERIMENT_ID": "0"}
    of_mlflow["HTTP_REQUEST_TIMEOUT"] = "600"
    process = subprocess.Popen(
        [sys.executable, "-m", "dpprof", "log", "runs/grid"],
        cwd=tmp_path,
        env=environment(tmp_path) | {f"MLFLOW_{name}": value for name, value in of_mlflow.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert store.reached.wait(60)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 12
    assert process.returncode == 130, errors
    experiment = known(store.client.get_experiment_by_name("dpprof"))
    assert store.client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'") == []


def test_ctrl_c_is_told_to_the_run_that_mlflow_made(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = store.client.create_run("0", tags={"mlflow.project.entryPoint": "sweep"}).info.run_id
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    monkeypatch.setenv("MLFLOW_RUN_ID", given)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "0")
    opened().end_given("KILLED")
    assert store.client.get_run(given).info.status == "KILLED"

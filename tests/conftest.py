"""What tests share: a folder with an MLflow store of its own, and the dpprof command as a user runs it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from example_ncu import StandIn

ROOT = Path(__file__).parent.parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def environment(folder: Path) -> dict[str, str]:
    """A clean MLflow environment whose store lies in the folder, with the tests importable as workloads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return kept | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "COLUMNS": "120",
    }


def run_dpprof(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """`python -m dpprof ARGUMENTS` in the folder; further environment variables as keywords."""
    return subprocess.run(
        [sys.executable, "-m", "dpprof", *arguments],
        cwd=folder,
        env=environment(folder) | more,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def dpprof(tmp_path: Path) -> Run:
    """Runs dpprof in the test's own folder."""
    return lambda *arguments, **more: run_dpprof(tmp_path, *arguments, **more)


@pytest.fixture
def mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Points this process's MLflow, and its working directory, at the test's own folder."""
    import mlflow

    for name in [name for name in os.environ if name.startswith("MLFLOW_") and "TELEMETRY" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    yield tmp_path
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def runs_of(folder: Path) -> dict[str, Any]:
    """All runs of the folder's store by name (`mlflow.entities.Run`)."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    return {run.info.run_name: run for run in found}


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep, `grid é`: all trainers on a very small transformer."""
    folder = tmp_path_factory.mktemp("swept")
    trainers = "dpsgd,dpsgd_ghost,dpsgd_fast,standard"
    arguments = ["--trainers", trainers, "--batch-sizes", "2", "--seq-lens", "16", "--sweep-name", "grid é"]
    ended = run_dpprof(folder, "sweep", *arguments, "--measured-steps", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """A folder with a program that stands in for `ncu`."""
    return StandIn(tmp_path / "bin")

"""What tests share: a folder with an MLflow store of its own, and the dpprof command as a user runs it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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

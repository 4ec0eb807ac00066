"""A real MLflow server on SQLite behind the faulty proxy, and what it holds."""

import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
from faulty_proxy import FaultyProxy
from mlflow import MlflowClient
from mlflow.entities import Run

from dpprof.drive.launch.ranks import free_port

_START_S = 240.0


class MlflowServer:
    """Its database and its artifacts lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._is_closed = folder, False
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self.port = free_port("127.0.0.1")
        self.proxy = FaultyProxy(self.port, {"killed": self.restart, "disk full": self.fill})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with open(f"{self.folder}.log", "ab") as log:
            self._process = subprocess.Popen(command, env=env, stdout=log, **streams, start_new_session=True)
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _START_S
        if self._is_closed:
            raise OSError("the server was closed")
        while True:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return
            assert time.monotonic() < deadline, f"MLflow's server does not start; see {self.folder}.log"
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again. The request that saw it die is cut at once, by the proxy."""
        self.kill()
        Thread(target=self.start, daemon=True).start()

    def fill(self) -> None:
        """Let no file of it grow any more, as on a full disk."""
        self._limit_files(0)

    def heal(self) -> None:
        """Make all faults good."""
        self._limit_files(resource.RLIM_INFINITY)
        self.proxy.heal()
        self.wait()

    def close(self) -> None:
        """End it, and leave nothing behind."""
        self._is_closed = True
        self.proxy.close()
        self.kill()

    def runs(self, experiment: str) -> list[Run]:
        """The runs of an experiment that were not deleted."""
        return stored_runs(self.folder / "mlflow.db", experiment)

    def artifacts(self, run: Run) -> frozenset[str]:
        """The names at the top of a run's artifacts."""
        kept = self.folder / "artifacts" / run.info.experiment_id / run.info.run_id / "artifacts"
        return frozenset(path.name for path in kept.iterdir()) if kept.is_dir() else frozenset()

    def _limit_files(self, size: int) -> None:
        assert self._process is not None, "started before"
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._process.pid)
            for one in [server, *server.children(recursive=True)]:
                one.rlimit(psutil.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def stored_runs(database: Path, experiment: str) -> list[Run]:
    """The runs of an experiment in a store's database."""
    client = MlflowClient(f"sqlite:///{database}")
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found is not None else []

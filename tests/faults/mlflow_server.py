"""A real MLflow server on SQLite behind the faulty proxy, and what it holds, read from its own files."""

import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import psutil
from faulty_proxy import FaultyProxy

_SIZE_MB = 96
_START_S = 240.0


@dataclass(frozen=True)
class StoredRun:
    """A run that was not deleted."""

    run_id: str
    name: str
    status: str
    is_parent: bool
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    artifacts: frozenset[str]


class MlflowServer:
    """Its database and its artifacts lie in a folder that can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._is_closed = folder, False
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self.is_mounted = _mount(folder)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.proxy = FaultyProxy(self.port, {"killed": self.restart, "disk full": self.fill})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        kept |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(f"{self.folder}.log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
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
        """Leave no room on its disk. Without a disk of its own no file of it may grow any more."""
        if not self.is_mounted:
            _limit_files(self._process, 0)
            return
        with open(self.folder / "filler", "wb") as filler:
            while (free := os.statvfs(self.folder)).f_bavail:
                with suppress(OSError):
                    os.posix_fallocate(filler.fileno(), filler.tell(), free.f_bavail * free.f_bsize)
                filler.seek(0, os.SEEK_END)

    def heal(self) -> None:
        """Make all faults good."""
        (self.folder / "filler").unlink(missing_ok=True)
        if not self.is_mounted:
            _limit_files(self._process, resource.RLIM_INFINITY)
        self.proxy.heal()
        self.wait()

    def close(self) -> None:
        """End it, and leave nothing behind."""
        self._is_closed = True
        self.proxy.close()
        self.kill()
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)

    def runs(self, experiment: str) -> list[StoredRun]:
        """The runs of an experiment that were not deleted."""
        path = self.folder / "mlflow.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            return stored_runs(database, experiment, self.folder / "artifacts")

    def drop_artifacts(self, experiment: str) -> None:
        """Make room, once an experiment was looked at."""
        with closing(sqlite3.connect(f"file:{self.folder}/mlflow.db?mode=ro", uri=True)) as database:
            found = database.execute("select experiment_id from experiments where name = ?", [experiment])
            for (number,) in found.fetchall():
                shutil.rmtree(self.folder / "artifacts" / str(number), ignore_errors=True)


def stored_runs(database: sqlite3.Connection, experiment: str, artifacts: Path | None) -> list[StoredRun]:
    """The runs of an experiment in a store's database."""
    rows = database.execute(
        "select run_uuid, r.name, status, experiment_id from runs r join experiments e using (experiment_id)"
        " where e.name = ? and r.lifecycle_stage = 'active' order by start_time",
        [experiment],
    ).fetchall()
    found = []
    for run_id, name, status, number in rows:
        metrics, params, tags = (
            dict(database.execute(f"select key, value from {table} where run_uuid = ?", [run_id]).fetchall())
            for table in ("latest_metrics", "params", "tags")
        )
        kept = artifacts / str(number) / run_id / "artifacts" if artifacts else None
        names = frozenset(p.name for p in kept.iterdir()) if kept and kept.is_dir() else frozenset()
        is_parent = "mlflow.parentRunId" not in tags
        found.append(StoredRun(run_id, name, status, is_parent, metrics, params, tags, names))
    return found


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "tmpfs", str(folder)]
    return shutil.which("mount") is not None and not subprocess.run(command, capture_output=True).returncode


def _limit_files(process: "subprocess.Popen[bytes] | None", size: int) -> None:
    if process is None or sys.platform != "linux":
        return
    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        one.rlimit(psutil.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

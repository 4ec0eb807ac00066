"""A dpprof command in a process of its own: what it has done so far, and signals at the right moment.

The stage that it is in shows in its folder and in its requests. A process that was caught in a stage is
frozen (SIGSTOP) and looked at again, so that the signal comes in that stage and in no other.
"""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import conftest
import psutil

from dpprof.drive.launch.job import MEASURE

NAME = "swept"
TRAINERS = ("StandardTrainer", "DPGhostClippingTrainer")
_MARK = "DPPROF_FAULT_ROW"
LONGEST_S = 300.0


class Missed(Exception):
    """The command ended, or went on, before it could be caught in the stage."""


def environment(uri: str, experiment: str, **more: str) -> dict[str, str]:
    """What a command needs to log there."""
    of_mlflow = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_EXPERIMENT_NAME": experiment}
    return conftest.environment(Path()) | of_mlflow | more


class Driven:
    """A running dpprof command."""

    def __init__(self, folder: Path, env: dict[str, str], *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._mark = folder, uuid.uuid4().hex
        number = len(list(folder.glob("*.out")))
        self._files = folder / f"{number}.out", folder / f"{number}.err"
        with open(self._files[0], "wb") as out, open(self._files[1], "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dpprof", *arguments],
                cwd=folder,
                env=env | {_MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """All that it said so far."""
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in self._files)

    def wait(self, longest_s: float = LONGEST_S) -> int | None:
        """Its exit code; None, and an end of it, if it takes too long."""
        try:
            return self.process.wait(longest_s)
        except subprocess.TimeoutExpired:
            self.end()
            return None

    def end(self) -> None:
        """Kill it and whatever it started."""
        self.process.kill()
        self.process.wait()
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def left(self) -> list[psutil.Process]:
        """The processes that it started and that still live."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if (
                    process.pid != self.process.pid
                    and process.status() != psutil.STATUS_ZOMBIE
                    and process.environ().get(_MARK) == self._mark
                ):
                    found.append(process)
        return found

    def child(self) -> psutil.Process | None:
        """Its measuring process."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if _is_measuring(child):
                        return child
        return None

    def until(self, is_there: Callable[[], bool], longest_s: float = LONGEST_S) -> None:
        """Wait for something. Raises Missed if the command ends before."""
        deadline = time.monotonic() + longest_s
        while not is_there():
            if self.process.poll() is not None:
                raise Missed(f"it ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise Missed(f"not after {longest_s:g} s")
            time.sleep(0.002)

    def cell(self, index: int) -> Path:
        """The run folder of a cell."""
        return self.folder / "runs" / NAME / f"{TRAINERS[index]}_tiny_bs2_seq16"


def _is_measuring(process: psutil.Process) -> bool:
    """Whether it measures, alone or as a fork of a process that only forks."""
    words, parent = process.cmdline(), process.parent()
    is_fork = parent is not None and "--fork" in parent.cmdline()
    return MEASURE in words and ("--fork" not in words or is_fork)

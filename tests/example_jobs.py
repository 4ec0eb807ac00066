"""Jobs of small programs, and their ends, for the tests of launchers."""

import sys
import time
from pathlib import Path
from typing import Any

from dpprof.drive.jobs import Stop, run_job
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.launcher import Handle, Launcher
from dpprof.record.folder import RunFolder


def job(place: Path, program: str, **needs: Any) -> Job:
    """A job that runs a program of Python, for a run folder made in this place."""
    folder = RunFolder(place / "runs" / "a run")
    folder.path.mkdir(parents=True)
    return Job(folder, [sys.executable, "-c", program], folder.log, 60, **needs)


def ran(launcher: Launcher, asked: Job) -> tuple[Exit, list[str]]:
    """How a job ended, and its lines."""
    lines: list[str] = []
    return run_job(launcher, asked, lines.append, Stop()), lines


def end_of(handle: Handle, within_s: float = 60) -> Exit:
    """How a submitted job ends, soon."""
    deadline = time.monotonic() + within_s
    while (ended := handle.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return ended

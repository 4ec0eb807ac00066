"""Jobs of small programs, their processes and their ends, for the tests of launchers."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

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


def command(process: psutil.Process) -> list[str]:
    """Return a process's command; none if it has ended.

    It has none for a moment, either, while the kernel puts the new program in place.
    """
    until = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):  # or it is a zombie by now
        while not (words := process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, process
            time.sleep(0.001)
        return words
    return []


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs, and is no zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def assert_gone(processes: list[psutil.Process]) -> None:
    """Wait until processes have ended."""
    deadline = time.monotonic() + 60
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline, "something outlived what started it"
        time.sleep(0.05)


def end_of(handle: Handle, within_s: float = 60) -> Exit:
    """How a submitted job ends, soon."""
    deadline = time.monotonic() + within_s
    while (ended := handle.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return ended

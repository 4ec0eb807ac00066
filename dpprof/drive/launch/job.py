"""A job: a command that works on a run folder. And how it ended."""

import sys
from dataclasses import dataclass
from pathlib import Path

from dpprof.record.folder import RunFolder


@dataclass(frozen=True)
class Job:
    """A command to run for a run folder, its output kept in `log`, for `timeout_s` seconds at most.

    The command names Python and the folder as they are on this machine. A launcher that runs it on another
    one puts in that machine's own, and brings the folder back.

    `estimates` is the workload of a job that estimates. It may begin as a copy of a process that has imported
    all it needs, as neither its time nor its memory is a figure.
    """

    folder: RunFolder
    command: list[str]
    log: Path
    timeout_s: float
    estimates: str = ""


@dataclass(frozen=True)
class Exit:
    """How a job ended.

    `code` is the exit code, or minus the signal. `oom_killed` tells that the kernel ran out of memory
    meanwhile and killed something; `peak_rss` is the last figure seen, in bytes.
    """

    code: int
    timed_out: bool = False
    interrupted: bool = False
    oom_killed: bool = False
    peak_rss: int | None = None


def measuring_command(folder: RunFolder, *, counted_step: bool = False) -> list[str]:
    """The command line of the measuring process; with `counted_step` it does the one step that a profiler
    around it counts.
    """
    options = ["--counted-step"] if counted_step else []
    return [sys.executable, "-m", "dpprof.measure", *options, str(folder.path)]


def check_command(folder: Path) -> list[str]:
    """The command line that checks the workload that a folder asks about."""
    return [sys.executable, "-m", "dpprof.measure", "--check", str(folder)]


def measuring_job(folder: RunFolder, timeout_s: float, estimates: str = "") -> Job:
    """The job that does a run folder's experiment."""
    return Job(folder, measuring_command(folder), folder.log, timeout_s, estimates)

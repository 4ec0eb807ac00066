"""Interface of launchers, tested by `tests/launcher_conformance.py`, and choice of one."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.ncu.program import Ncu
from dpprof.errors import ConfigError, CountersUnavailable
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.settings import take


class Machine(Protocol):
    """Machine that a launcher's jobs run on."""

    def cuda_available(self) -> bool:
        """Tell if torch finds a CUDA device. May take seconds: check options first."""

    def busy_pct(self) -> float:
        """Percentage of the processors in use by other work."""

    def ncu(self, device: str) -> Ncu:
        """Return the program that counts on a device. Raises CountersUnavailable with what is missing."""


@dataclass(frozen=True)
class NodesElsewhere:
    """Nodes of a cluster, taken together. `cuda_available` tells if one has a GPU, as far as is known here.

    `without_counters` says why none counts.
    """

    cuda_available: Callable[[], bool]
    without_counters: str

    def busy_pct(self) -> float:
        """Return 0: each run records whether it was disturbed."""
        return 0.0

    def ncu(self, device: str) -> Ncu:
        """Raise CountersUnavailable."""
        raise CountersUnavailable(self.without_counters)


class Handle(Protocol):
    """Submitted job."""

    def poll(self) -> Exit | None:
        """Return how the job ended, or None while it runs; never waits.

        Must be called repeatedly: it also passes on log lines and ends a job whose time is over.
        """

    def cancel(self) -> None:
        """Ask the job and all it started to end; `poll` tells when they have."""


class Launcher(Protocol):
    """Runs jobs. Its class takes an instance of its own options, if it has any."""

    @property
    def can_end_jobs(self) -> bool:
        """True if it ends jobs that are cancelled or out of time."""

    @property
    def machine(self) -> Machine:
        """Machine of its jobs, or one of several alike."""

    @property
    def scratch(self) -> Path | None:
        """Folder for files that its jobs can see, if not any folder."""

    def slots_for(self, job: Job) -> int:
        """Return how many such jobs can run in parallel without spoiling each other's figures."""

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Start a job. `on_line` gets each log line while the job is polled."""


def make_launcher(drive: DriveConfig) -> Launcher:
    """Create the launcher that the user chose. Raises ConfigError if it cannot be used."""
    info = LAUNCHERS[drive.launcher]
    if info.package and importlib.util.find_spec(info.package) is None:
        needed = f"{info.name} needs {info.package}, which is not installed"
        raise ConfigError(f"launcher: {needed}: pip install 'dpprof[{info.extra}]'")
    try:
        launcher_class = load(info.target)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"launcher: {info.name} cannot be used: {error}") from error
    launcher: Launcher = launcher_class(*([take(info.options, drive.options)[0]] if info.options else []))
    return launcher

"""What a launcher is, and which one the user chose.

`tests/drive/launch/test_launchers.py` holds every registered launcher to this.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.job import Exit, Job
from dpprof.errors import ConfigError
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.registry import load


class Ncu(Protocol):
    """Nsight Compute as installed on some machine. Its methods raise CountersError or CountersUnavailable."""

    @property
    def path(self) -> str:
        """Where the program is."""

    def version(self) -> str:
        """The program's version."""

    def available_metrics(self) -> frozenset[str]:
        """Base names of the metrics that the machine's GPU has."""

    def to_csv(self, report: Path) -> str:
        """The raw page of a report in a run folder."""


class Machine(Protocol):
    """What there is on the machine that a launcher's jobs run on."""

    def cuda_available(self) -> bool:
        """Whether torch finds a CUDA device. May take seconds: check options first."""

    def busy_pct(self) -> float:
        """How busy the processors are at this moment with other work, 0 to 100."""

    def ncu(self, device: str) -> Ncu:
        """The program that counts on a device, as far as can be told before it tries.

        Raises CountersUnavailable with what is missing.
        """


class Handle(Protocol):
    """A job that was submitted."""

    def poll(self) -> Exit | None:
        """How the job ended, or None while it runs; never waits.

        Also passes on the lines that the job's log has received, and ends a job whose time is over: so a
        running job must be polled.
        """

    def cancel(self) -> None:
        """Ask for the job's end, and that of all it started; `poll` tells when it is gone."""


class Launcher(Protocol):
    """Runs jobs. Its class is given an instance of its own options, or nothing if it has none."""

    @property
    def can_end_jobs(self) -> bool:
        """Whether it ends jobs that are cancelled or whose time is over."""

    @property
    def machine(self) -> Machine:
        """The machine that its jobs run on, or one of several that are alike."""

    @property
    def scratch(self) -> Path | None:
        """Where files lie that its jobs see, if that is not anywhere."""

    def slots_for(self, job: Job) -> int:
        """How many jobs like this one it can run at a time, so that none spoils another's figures."""

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Start a job. `on_line` gets each line of its log, while it is polled."""


def make_launcher(drive: DriveConfig) -> Launcher:
    """The launcher that the user chose, with its own options. Raises ConfigError if it cannot be used."""
    info = LAUNCHERS[drive.launcher]
    if info.package and importlib.util.find_spec(info.package) is None:
        needed = f"{info.name} needs {info.package}, which is not installed"
        raise ConfigError(f"launcher: {needed}: pip install 'dpprof[{info.extra}]'")
    try:
        launcher_class = load(info.target)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"launcher: {info.name} cannot be used: {error}") from error
    launcher: Launcher = launcher_class(*([drive.options_of(info.options)] if info.options else []))
    return launcher

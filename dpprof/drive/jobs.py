"""Runs a job to its end, or until the user stops everything."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.job import Exit, Job, measuring_job
from dpprof.drive.launch.launcher import Handle, Launcher
from dpprof.errors import refuse
from dpprof.process import finish_undisturbed, stopping_signals
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.messages import SAID

_POLL_S = 0.25


class Stopped(Exception):
    """The user stopped everything."""


class Stop:
    """Request to stop. A plain flag: a signal may set it even while a `threading.Event` is locked."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask everything to stop."""
        self.requested = True


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Make Ctrl-C and other stopping signals set the flag instead of raising KeyboardInterrupt.

    Further signals have no effect: under `mlflow run` two come in a row.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop.request()

    before = {number: signal.signal(number, handle) for number in stopping_signals()}
    try:
        yield
    finally:
        if stop.requested:
            finish_undisturbed()
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class Runner:
    """Runs an experiment's jobs, each for `timeout_s`. `on_line` gets messages; `stop` cancels the jobs.

    `another_follows` if a measured experiment will be run after this one.
    """

    launcher: Launcher
    timeout_s: float
    on_line: Callable[[str], None]
    stop: Stop = field(default_factory=Stop)
    another_follows: bool = False

    def measure(self, job: Job) -> Exit:
        """Run a job of the measuring process to its end, and pass on its messages, not all its lines."""

        def pass_on(line: str) -> None:
            if line.startswith(SAID):
                self.on_line(line.removeprefix(SAID))

        return run_job(self.launcher, job, pass_on, self.stop)


def run_job(launcher: Launcher, job: Job, on_line: Callable[[str], None], stop: Stop) -> Exit:
    """Submit a job and wait for its end. `on_line` gets each log line; `stop` cancels the job."""
    handle = launcher.submit(job, on_line)
    try:
        return _wait(handle, stop)
    except BaseException:  # whatever it was, the job must not outlive it
        handle.cancel()
        _wait(handle, stop)
        raise


def at_a_time(launcher: Launcher, config: ExperimentConfig, workers: int = 0) -> int:
    """Return how many such experiments run in parallel: `workers`, or if 0 as many as suit the launcher.

    Raises ConfigError if the launcher cannot run several.
    """
    if workers > 1 and not launcher.can_end_jobs:
        raise refuse("workers", workers, "1 with a launcher that runs everything in this process")
    return workers or launcher.slots_for(measuring_job(config, RunFolder(config.run_name), 1.0))


def _wait(handle: Handle, stop: Stop) -> Exit:
    while (ended := handle.poll()) is None:
        if stop.requested:
            handle.cancel()
        time.sleep(_POLL_S)
    return ended

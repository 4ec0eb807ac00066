"""Runs a job to its end."""

import time
from collections.abc import Callable

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.job import Exit, Job, measuring_job
from dpprof.drive.launch.launcher import Handle, Launcher
from dpprof.drive.stop import Stop
from dpprof.errors import refuse
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.messages import SAID

_POLL_S = 0.25


def run_measuring(launcher: Launcher, job: Job, on_message: Callable[[str], None], stop: Stop) -> Exit:
    """Run a job of the measuring process to its end. `on_message` gets its messages, not all its lines."""

    def pass_on(line: str) -> None:
        if line.startswith(SAID):
            on_message(line.removeprefix(SAID))

    return run_job(launcher, job, pass_on, stop)


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

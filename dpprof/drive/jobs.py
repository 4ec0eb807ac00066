"""Runs a job to its end."""

import time
from collections.abc import Callable

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.launcher import Handle, Launcher
from dpprof.drive.stop import Stop

_POLL_S = 0.25


def run_job(launcher: Launcher, job: Job, on_line: Callable[[str], None], stop: Stop) -> Exit:
    """Submit a job and wait for its end. `on_line` gets each line of its log; `stop` cancels it."""
    handle = launcher.submit(job, on_line)
    try:
        return _wait(handle, stop)
    except BaseException:  # whatever it was, the job must not outlive it
        handle.cancel()
        _wait(handle, stop)
        raise


def _wait(handle: Handle, stop: Stop) -> Exit:
    while (ended := handle.poll()) is None:
        if stop.requested:
            handle.cancel()
        time.sleep(_POLL_S)
    return ended

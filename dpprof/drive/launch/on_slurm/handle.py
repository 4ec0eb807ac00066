"""A job in Slurm's queue, as the driving process follows it."""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from submitit.core.utils import FailedJobError, UncompletedJobError

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import FollowedLog
from dpprof.drive.launch.on_slurm.on_node import Meeting
from dpprof.drive.launch.orders import CANCEL, give

# How often Slurm is asked, and how long a job may take to end before Slurm is told to end it.
_ASKING_S, _ENDING_S = 1.0, 30.0
# How long an answer may take to be seen here once the job is over, on a slow file system.
_ANSWER_S = 15.0
_NO_MEMORY = "OUT_OF_MEMORY"
# submitit waits for such a job, as if it began anew.
_PREEMPTED = "PREEMPTED"


class SlurmHandle:
    """A job that was submitted: `submitted` is submitit's, with a task for each of its parts."""

    def __init__(self, job: Job, on_line: Callable[[str], None], submitted: Any, meeting: Meeting) -> None:
        self._job, self._on_line, self._submitted, self._meeting = job, on_line, submitted, meeting
        self._log: FollowedLog | None = None
        self._ask_at = 0.0
        self._kill_at: float | None = None
        self._lost_at: float | None = None
        self._exit: Exit | None = None

    def poll(self) -> Exit | None:
        """How the job ended, if it did."""
        if self._exit is not None:
            return self._exit
        self._hear()
        now = time.monotonic()
        if self._kill_at is not None and now > self._kill_at:
            self._kill()
        if now > self._ask_at:
            self._ask_at = now + _ASKING_S
            # submitit asks Slurm ever more seldom: a job that was killed is not waited for so long.
            if self._submitted.done() or self._has_no_answer(now) or self._submitted.state == _PREEMPTED:
                self._settle(now)
        return self._exit

    def cancel(self) -> None:
        """Ask the job to end; one that still waits leaves the queue."""
        if self._exit is not None or self._kill_at is not None:
            return
        give(CANCEL, self._meeting.told)
        self._kill_at = time.monotonic() + _ENDING_S
        self._ask_at = 0.0
        if not self._meeting.has_begun:
            self._kill()

    def _kill(self) -> None:
        """Have Slurm end it. What has begun by then ends as it is told."""
        self._kill_at = float("inf")
        self._submitted.cancel(check=False)
        self._lost_at = time.monotonic() + _ANSWER_S
        if not self._meeting.has_begun:
            self._finish(Exit(-signal.SIGTERM, interrupted=True))

    @property
    def _is_cancelled(self) -> bool:
        return self._kill_at is not None

    def _has_no_answer(self, now: float) -> bool:
        return self._lost_at is not None and now > self._lost_at

    def _settle(self, now: float) -> None:
        tasks = [self._submitted.task(number) for number in range(self._submitted.num_tasks)]
        if not all(task.paths.result_pickle.exists() for task in tasks):
            self._lost_at = self._lost_at or now + _ANSWER_S
            if self._has_no_answer(now) or self._is_cancelled:
                self._finish(self._lost())
            return
        try:
            self._finish(_together([task.result() for task in tasks]))
        except (FailedJobError, UncompletedJobError) as error:
            self._finish(Exit(1, said=f"Slurm could not run it: {_last_line_of_trace(error)}"))

    def _lost(self) -> Exit:
        """The end of a job that has left no answer."""
        state = str(self._submitted.state)
        why = _last_line(self._submitted.task(0).stderr() or "")
        return Exit(
            -signal.SIGKILL,
            interrupted=self._is_cancelled,
            oom_killed=state == _NO_MEMORY,
            said=f"Slurm ended job {self._submitted.job_id} ({state})" + (f": {why}" if why else ""),
        )

    def _finish(self, ended: Exit) -> None:
        if self._is_cancelled and not ended.interrupted:  # Slurm's own signal came first
            ended = replace(ended, interrupted=True)
        self._exit = ended
        shutil.rmtree(self._meeting.path, ignore_errors=True)
        self._hear()
        if self._log is not None:
            lines, log = self._log.last_lines(), self._log
            self._log = None
            log.close()
            self._pass_on(lines)

    def _hear(self) -> None:
        """Pass on what the log of the process, or of rank 0, has received."""
        if self._log is None:
            with suppress(OSError):
                self._log = FollowedLog(os.open(self._job.log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        if self._log is not None:
            self._pass_on(self._log.new_lines())

    def _pass_on(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._on_line(line)


def _together(exits: Sequence[Exit]) -> Exit:
    if len(exits) == 1:
        return exits[0]
    environment = dict(exits[0].environment)
    environment["node"] = ", ".join(dict.fromkeys(one.environment["node"] for one in exits))
    return replace(Exit.of_ranks([rank for one in exits for rank in one.ranks]), environment=environment)


def _last_line_of_trace(error: Exception) -> str:
    """submitit puts the trace between lines of dashes."""
    parts = re.split(r"^-{5,}$", str(error), flags=re.MULTILINE)
    return _last_line(parts[1] if len(parts) > 1 else parts[0])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""

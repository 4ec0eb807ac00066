"""A process of a job on this machine, and whatever it starts."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress

from dpprof.drive.launch.forks import Forked, Forks, NoForks
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import JobLog
from dpprof.drive.launch.kernel_oom import oom_kill_counts
from dpprof.process import END_WITH, JOB, kill_job, peak_rss_bytes

_GRACE_S = 5.0
# The log is UTF-8, whatever the terminal is: a workload may print what that cannot show.
_OUTPUT = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:replace"}


class Child:
    """The process of a job, or one of its ranks. `forks`, if given, may start one that estimates.

    `environment` has variables of its own, beside those of this process.
    """

    def __init__(
        self,
        job: Job,
        on_line: Callable[[str], None],
        *,
        environment: Mapping[str, str] | None = None,
        forks: Forks | None = None,
    ) -> None:
        self._job, self._on_line = job, on_line
        self._environment = os.environ | _OUTPUT | dict(environment or {})
        self._exit: Exit | None = None
        self._timed_out = self._interrupted = self._followed = False
        self._kill_at: float | None = None
        self._peak_rss: int | None = None
        self._oom_kills_before = oom_kill_counts()
        self._started = time.monotonic()
        self._mark = uuid.uuid4().hex
        self._log = JobLog(job.log)
        try:
            self._process = self._start(forks)
        except BaseException:
            self._log.close()
            raise

    def _start(self, forks: Forks | None) -> "subprocess.Popen[bytes] | Forked":
        job, log = self._job, self._log.descriptor
        if job.estimates and forks is not None:
            with suppress(NoForks):  # any process can estimate
                return forks.start(job.folder, job.workload, log, self._environment)
        # A session of its own: Ctrl-C in the terminal reaches the driving process alone, which then decides;
        # and whatever the child starts can be stopped with it.
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=self._environment | {END_WITH: str(os.getpid()), JOB: self._mark},
        )

    def poll(self) -> Exit | None:
        """How the process ended, if it did. Ends one whose time is over."""
        if self._exit is not None:
            return self._exit
        if (code := self._process.poll()) is not None:
            return self._end(code)
        self._peak_rss = peak_rss_bytes(self._process.pid) or self._peak_rss
        self._pass_on(self._log.new_lines())
        now = time.monotonic()
        if self._kill_at is None and now - self._started > self._job.timeout_s:
            self._timed_out = True
            self._terminate()
        if self._kill_at is not None and now > self._kill_at:
            self._signal(signal.SIGKILL)
        return None

    def cancel(self) -> None:
        """Ask the process to end; it is killed if it takes too long."""
        if self._exit is None and self._kill_at is None:
            self._interrupted = True
            self._terminate()

    def follow(self) -> None:
        """The same, because another rank has failed."""
        if self._exit is None and self._kill_at is None:
            self._followed = True
            self._terminate()

    def _terminate(self) -> None:
        self._kill_at = time.monotonic() + _GRACE_S
        self._signal(signal.SIGTERM)

    def _end(self, code: int) -> Exit:
        self._signal(signal.SIGKILL)  # whatever it started
        kill_job(self._mark)  # and what left its session
        lines = self._log.last_lines()
        self._log.close()
        pairs = zip(oom_kill_counts(), self._oom_kills_before, strict=True)
        self._exit = Exit(
            code=code,
            timed_out=self._timed_out,
            interrupted=self._interrupted,
            oom_killed=any(now > before for now, before in pairs),
            peak_rss=self._peak_rss,
            followed=self._followed,
        )
        self._pass_on(lines)
        return self._exit

    def _pass_on(self, lines: list[str]) -> None:
        for line in lines:
            self._on_line(line)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

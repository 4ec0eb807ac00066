"""A job's process on this machine, with all that it starts."""

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dpprof.drive.launch.forks import Forked, Forks, NoForks
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import JobLog
from dpprof.drive.launch.spare import Spare
from dpprof.process import END_WITH, JOB, kill_job, peak_rss_bytes
from dpprof.record.files import read_text

_GRACE_S = 5.0
# Linux's counts of processes ended by its out-of-memory killer.
_VMSTAT = Path("/proc/vmstat")
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
# Logs are UTF-8 whatever the terminal's encoding: a workload may print any character.
_OUTPUT = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:replace"}


def environment_of_jobs() -> dict[str, str]:
    """Return the environment of a job's process."""
    return os.environ | _OUTPUT


class Child:
    """Process of a job or rank. `environment` adds variables; `forks` may fork it, or `spare` is taken."""

    def __init__(
        self,
        job: Job,
        on_line: Callable[[str], None],
        *,
        environment: Mapping[str, str] | None = None,
        forks: Forks | None = None,
        spare: Spare | None = None,
    ) -> None:
        self._job, self._on_line, self._spare = job, on_line, spare
        self._environment = environment_of_jobs() | dict(environment or {})
        self._exit: Exit | None = None
        self._why = ""
        self._kill_at: float | None = None
        self._peak_rss: int | None = None
        self._oom_kills_before = oom_kill_counts()
        self._started = time.monotonic()
        self._mark = spare.mark if spare is not None else uuid.uuid4().hex
        self._log = JobLog(job.log)
        try:
            self._process = self._start(forks)
        except BaseException:
            self._log.close()
            raise

    def _start(self, forks: Forks | None) -> "subprocess.Popen[bytes] | Forked":
        job, log = self._job, self._log.descriptor
        if job.may_fork and forks is not None:
            with suppress(NoForks):  # any process will do
                return forks.start(job, log, self._mark, self._environment)
        if self._spare is not None:
            with suppress(OSError):  # it has ended
                self._spare.give(job, log)
                return self._spare.process
            self._spare = None
        # In its own session: Ctrl-C in the terminal reaches only the driving process, which then decides, and
        # whatever the child starts can be stopped with it.
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=self._environment | {END_WITH: str(os.getpid()), JOB: self._mark},
        )

    def poll(self) -> Exit | None:
        """Return how the process ended, if it did. Ends it when its time is over."""
        if self._exit is not None:
            return self._exit
        if (code := self._process.poll()) is not None:
            if self._why or self._spare is None or self._spare.has_begun():
                return self._end(code)
            self._spare = None  # it ended before it knew its experiment
            self._process = self._start(None)
        self._peak_rss = peak_rss_bytes(self._process.pid) or self._peak_rss
        self._pass_on(self._log.new_lines())
        now = time.monotonic()
        if now - self._started > self._job.timeout_s:
            self._terminate("late")
        if self._kill_at is not None and now > self._kill_at:
            self._signal(signal.SIGKILL)
        return None

    def cancel(self) -> None:
        """Ask the process to end; it is killed after a grace period."""
        self._terminate("cancelled")

    def follow(self) -> None:
        """Ask the process to end because another rank has failed."""
        self._terminate("followed")

    def _terminate(self, why: str) -> None:
        if self._exit is None and self._kill_at is None:
            self._why = why
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
            timed_out=self._why == "late",
            interrupted=self._why == "cancelled",
            oom_killed=any(now > before for now, before in pairs),
            peak_rss=self._peak_rss,
            followed=self._why == "followed",
        )
        self._pass_on(lines)
        return self._exit

    def _pass_on(self, lines: list[str]) -> None:
        for line in lines:
            self._on_line(line)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def oom_kill_counts() -> tuple[int, int]:
    """Return the `oom_kill` counts of this process's cgroup (v2) and of the machine; 0 if unreadable.

    A process killed by SIGKILL ran out of memory only if a count rose meanwhile.
    """
    found = re.search(r"^0::/(.*)$", read_text(_OWN_CGROUP), re.MULTILINE)
    events = _CGROUP_ROOT / (found[1] if found else "") / "memory.events"
    counts = (re.search(r"^oom_kill (\d+)$", read_text(path), re.MULTILINE) for path in (events, _VMSTAT))
    cgroup, machine = (int(count[1]) if count else 0 for count in counts)
    return cgroup, machine

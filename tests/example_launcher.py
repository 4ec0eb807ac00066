"""A launcher of another package, for the tests: child processes, and a machine that may count on its CPU."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.local import LocalMachine
from dpprof.drive.ncu.program import Ncu


class ToyMachine(LocalMachine):
    """This machine, with an `ncu` that counts on any device."""

    def ncu(self, device: str) -> Ncu:
        return Ncu(shutil.which("ncu") or "ncu")


class ToyLauncher:
    can_end_jobs, scratch, machine = True, None, ToyMachine()

    def slots_for(self, job: Job) -> int:
        return 1

    def submit(self, job: Job, on_line: Callable[[str], None]) -> "ToyHandle":
        return ToyHandle(job, on_line)


class ToyHandle:
    def __init__(self, job: Job, on_line: Callable[[str], None]) -> None:
        self.job, self.on_line, self.ended_for = job, on_line, ""
        self.deadline = time.monotonic() + job.timeout_s
        with open(job.log, "w") as output:
            self.child = subprocess.Popen(job.command, stdout=output, stderr=output, start_new_session=True)
        self.log = open(job.log)  # noqa: SIM115

    def poll(self) -> Exit | None:
        code = self.child.poll()
        for line in self.log:
            self.on_line(line.strip())
        if code is None and time.monotonic() > self.deadline:
            self.end("time")
        return None if code is None else Exit(code, self.ended_for == "time", self.ended_for == "cancel")

    def cancel(self) -> None:
        self.end("cancel")

    def end(self, why: str) -> None:
        self.ended_for = self.ended_for or why
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)

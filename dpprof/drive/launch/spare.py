"""Starts a measuring process before its experiment is known; see `python -m dpprof.measure --wait`."""

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
import weakref
from contextlib import suppress
from tempfile import TemporaryFile

from dpprof.drive.launch.job import MEASURE, Job, measuring_command
from dpprof.process import END_WITH, JOB

WAIT = "--wait"


def _end(to_process: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """End a process that nobody needs, and wait for its end."""
    to_process.close()
    process.kill()
    process.wait()


def _read_by_jobs(environment: dict[str, str]) -> dict[str, str]:
    """Leave out MLflow's own variables: a driving process sets some later, and no measuring one reads any."""
    return {name: value for name, value in environment.items() if "MLFLOW" not in name}


class Spare:
    """A measuring process that imports all that experiments need, and waits for one.

    Starts with the environment and in the directory of its driving process; `mark` marks it and all that it
    will start. It ends when it is no longer referred to, unless it has an experiment.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self._made_for = _read_by_jobs(environment), os.getcwd()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        # It copies into its log what was written meanwhile, such as warnings of imports.
        with theirs, TemporaryFile() as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", MEASURE, WAIT],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment | {END_WITH: str(os.getpid()), JOB: self.mark},
            )
        self._unneeded = weakref.finalize(self, _end, self._socket, self.process)
        self._has_begun = False

    def suits(self, environment: dict[str, str]) -> bool:
        """Tell whether it still runs, and began as a process that begins now would."""
        return self.process.poll() is None and self._made_for == (_read_by_jobs(environment), os.getcwd())

    def give(self, job: Job, log: int) -> None:
        """Give it an experiment, and a log for its output. Raises OSError if it has ended."""
        socket.send_fds(self._socket, [json.dumps(str(job.folder.path)).encode()], [log])
        self._unneeded.detach()

    def has_begun(self) -> bool:
        """Tell whether it has read which experiment is its."""
        with suppress(OSError):  # it has not, or has ended
            self._has_begun = self._has_begun or bool(self._socket.recv(1))
        return self._has_begun


class Spares:
    """Keeps at most one spare process."""

    def __init__(self) -> None:
        self._spare: Spare | None = None

    def start(self, environment: dict[str, str]) -> None:
        """Start one, unless there is one.

        Only in the main thread: the kernel ends a child with the thread that started it (`end_with_driver`).
        """
        if self._spare is None and threading.current_thread() is threading.main_thread():
            self._spare = Spare(environment)

    def take(self, job: Job, environment: dict[str, str]) -> Spare | None:
        """Return the spare process for a job, if there is one that suits."""
        if job.command != measuring_command(job.folder.path) or not job.is_measured:
            return None
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.suits(environment) else None

"""Starts estimates as forks of a process with all imports done; see `python -m dpprof.measure --fork`."""

import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress

from dpprof.drive.launch.job import MEASURE, Job

_STARTING_S, _ENDING_S, _LOOK_S = 120.0, 5.0, 0.05
_LONGEST_ANSWER = 2**12


class NoForks(Exception):
    """Forking is impossible."""


class Forked:
    """Forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks, self.pid = forks, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code or minus the signal; None while it runs. Killed if its parent has ended."""
        if self.returncode is None:
            self.returncode = self._forks.code_of(self.pid)
        return self.returncode


def _end(to_server: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    """End the fork server and wait for it; it waits for its own children."""
    to_server.close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(_ENDING_S)


class Forks:
    """The fork server, started on first use and again if it has ended.

    Starts come one after the other, as the server's answers do. The lock is held for moments only: whoever
    asks for the code of a process does not wait until the server has started.
    """

    def __init__(self) -> None:
        self._starts, self._lock = threading.Lock(), threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._started: list[int] = []
        self._running: set[int] = set()
        self._codes: dict[int, int] = {}

    def start(self, job: Job, log: int, mark: str, environment: Mapping[str, str]) -> Forked:
        """Fork a process for a job, marked, with its output in the log. Raises NoForks."""
        request = {"folder": str(job.folder.path), "workload": job.workload, "mark": mark}
        with self._starts:
            with self._lock:
                if self._server is None:
                    self._serve(environment)
                try:
                    socket.send_fds(self._socket, [json.dumps(request).encode()], [log])
                except OSError as error:
                    self._lose()
                    raise NoForks from error
            deadline = time.monotonic() + _STARTING_S
            while (pid := self._next_started()) is None:
                if time.monotonic() > deadline:
                    with self._lock:  # its answer would be taken for the next one's
                        self._lose()
                    raise NoForks
                with suppress(OSError, ValueError):  # another thread has seen that the server has ended
                    select.select([self._socket], [], [], _LOOK_S)
            return Forked(self, pid)

    def _next_started(self) -> int | None:
        """Return the pid that the server has answered, if it has. Raises NoForks if the server has ended."""
        with self._lock:
            self._read()
            if self._started:
                return self._started.pop()
            if self._server is None:
                raise NoForks
            return None

    def code_of(self, pid: int) -> int | None:
        """Return a process's exit code once it has ended; only once, as pids are reused."""
        with self._lock:
            self._read()
            return self._codes.pop(pid, None)

    def _serve(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", MEASURE, "--fork"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(environment),
            )
        weakref.finalize(self, _end, self._socket, self._server)

    def _read(self) -> None:
        """Read all answers that are there."""
        while self._server is not None:
            try:
                packet = self._socket.recv(_LONGEST_ANSWER, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._lose()
                return
            answer = json.loads(packet)
            if "code" in answer:
                self._codes[answer["pid"]] = answer["code"]
                self._running.discard(answer["pid"])
            else:
                self._started.append(answer["pid"])
                self._running.add(answer["pid"])

    def _lose(self) -> None:
        """Clean up after the server's end, which also ends what it had forked."""
        if self._server is None:
            return
        self._socket.close()
        self._server.kill()
        self._server.wait()
        self._server = None
        self._codes.update(dict.fromkeys(self._running, -signal.SIGKILL))
        self._running.clear()
        self._started.clear()

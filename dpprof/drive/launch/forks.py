"""Starts estimates as forks of a process with all imports done; see `python -m dpprof.measure --fork`."""

import json
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress

from dpprof.drive.launch.job import MEASURE, Job

_STARTING_S, _ENDING_S = 120.0, 5.0
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
    """The fork server, started on first use and again if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._started: list[int] = []
        self._running: set[int] = set()
        self._codes: dict[int, int] = {}

    def start(self, job: Job, log: int, mark: str, environment: Mapping[str, str]) -> Forked:
        """Fork a process for a job, marked, with its output in the log. Raises NoForks."""
        request = {"folder": str(job.folder.path), "workload": job.workload, "mark": mark}
        with self._lock:
            if self._server is None:
                self._serve(environment)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [log])
            except OSError as error:
                self._lose()
                raise NoForks from error
            while not self._started:
                if not self._read(_STARTING_S):
                    if self._server is not None:  # its answer would be taken for the next one's
                        self._lose()
                    raise NoForks
            pid = self._started.pop()
            self._running.add(pid)
            return Forked(self, pid)

    def code_of(self, pid: int) -> int | None:
        """Return a process's exit code once it has ended; only once, as pids are reused."""
        with self._lock:
            while pid not in self._codes and self._read(0.0):
                pass
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

    def _read(self, timeout_s: float) -> bool:
        """Read one answer; False if none comes in time or the server has ended."""
        if self._server is None:
            return False
        self._socket.settimeout(timeout_s)
        try:
            packet = self._socket.recv(_LONGEST_ANSWER)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            packet = b""
        if not packet:
            self._lose()
            return False
        answer = json.loads(packet)
        if "code" in answer:
            self._codes[answer["pid"]] = answer["code"]
            self._running.discard(answer["pid"])
        else:
            self._started.append(answer["pid"])
        return True

    def _lose(self) -> None:
        """Clean up after the server's end, which also ends what it had forked."""
        assert self._server is not None
        self._socket.close()
        self._server.kill()
        self._server.wait()
        self._server = None
        self._codes.update(dict.fromkeys(self._running, -signal.SIGKILL))
        self._running.clear()
        self._started.clear()

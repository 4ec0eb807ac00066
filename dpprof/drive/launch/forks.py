"""Starts estimates as forks of one process that has imported all they need: the other end of its socket.

`python -m dpprof.measure --fork` tells what is said there.
"""

import json
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress

from dpprof.record.folder import RunFolder

_STARTING_S, _ENDING_S = 120.0, 5.0
_LONGEST_ANSWER = 2**12


class NoForks(Exception):
    """Nothing can be forked."""


class Forked:
    """A forked process, with what `subprocess.Popen` tells of one."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks, self.pid = forks, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs. One whose parent has ended was killed."""
        if self.returncode is None:
            self.returncode = self._forks.code_of(self.pid)
        return self.returncode


def _end(to_server: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    """End the process that forks, and wait until it is gone; it waits for those that it had forked."""
    to_server.close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(_ENDING_S)


class Forks:
    """The process that forks; started when first wanted, and again if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._started: list[int] = []
        self._running: set[int] = set()
        self._codes: dict[int, int] = {}

    def start(self, folder: RunFolder, workload: str, log: int, environment: Mapping[str, str]) -> Forked:
        """Fork a process for a run folder; its output goes to the log. Raises NoForks."""
        if sys.platform != "linux":
            raise NoForks
        request = json.dumps({"folder": str(folder.path), "workload": workload}).encode()
        with self._lock:
            if self._server is None:
                self._serve(environment)
            try:
                socket.send_fds(self._socket, [request], [log])
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
        """How a forked process ended, if it did; told once, as another may get its number."""
        with self._lock:
            while pid not in self._codes and self._read(0.0):
                pass
            return self._codes.pop(pid, None)

    def _serve(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "dpprof.measure", "--fork"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(environment),
            )
        weakref.finalize(self, _end, self._socket, self._server)

    def _read(self, timeout_s: float) -> bool:
        """Take an answer; False if none comes within the time, or none can come any more."""
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
        """The process has ended. What it had forked does not outlive it."""
        assert self._server is not None
        self._socket.close()
        self._server.kill()
        self._server.wait()
        self._server = None
        self._codes.update(dict.fromkeys(self._running, -signal.SIGKILL))
        self._running.clear()
        self._started.clear()

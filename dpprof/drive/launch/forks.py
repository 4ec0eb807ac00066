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

from dpprof.drive.launch.job import MEASURE
from dpprof.record.folder import RunFolder

_STARTING_S, _ENDING_S = 120.0, 5.0
_LONGEST_ANSWER = 64


class NoForks(Exception):
    """Forking is impossible."""


class Forked:
    """Forked process, with the interface of `subprocess.Popen`. Raises OSError if the server forks none."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.returncode: int | None = None
        answers.settimeout(_STARTING_S)
        pid = answers.recv(_LONGEST_ANSWER)
        if not pid:
            raise ConnectionAbortedError("the fork server has ended")
        self.pid = int(pid)
        answers.setblocking(False)

    def poll(self) -> int | None:
        """Return the exit code or minus the signal; None while it runs. Killed if its parent has ended."""
        if self.returncode is None:
            with suppress(BlockingIOError):
                code = self._answers.recv(_LONGEST_ANSWER)
                self.returncode = int(code) if code else -signal.SIGKILL
                self._answers.close()
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

    def start(self, folder: RunFolder, workload: str, log: int, environment: Mapping[str, str]) -> Forked:
        """Fork a process for a run folder, with its output in the log. Raises NoForks."""
        request = json.dumps({"folder": str(folder.path), "workload": workload}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock:
            if self._server is None or self._server.poll() is not None:
                self._serve(environment)
            try:
                with theirs:
                    socket.send_fds(self._socket, [request], [log, theirs.fileno()])
                return Forked(ours)
            except OSError as error:
                ours.close()
                self._lose()
                raise NoForks from error

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

    def _lose(self) -> None:
        """End a server that does not answer, which also ends what it had forked."""
        assert self._server is not None
        self._socket.close()
        self._server.kill()
        self._server.wait()
        self._server = None

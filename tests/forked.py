"""Python commands in processes of their own that need not import torch: forks of one that has (`forking.py`).

For commands of which the start does not matter; what comes before and during imports is another test's.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

FORKING = Path(__file__).with_name("forking.py")
_LONGEST_ANSWER = 2**12
_POLL_S = 0.01


class _Server:
    """The process that forks, and the exit codes of its forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(FORKING)],
                stdin=theirs.fileno(),
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(FORKING.parents[1])},
            )
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._started: list[int] = []
        atexit.register(self._socket.close)

    def start(self, request: dict[str, object], descriptors: list[int]) -> int:
        """Fork a process and return its id."""
        with self._lock:
            self._socket.setblocking(True)
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            while not self._started:
                self._read()
            return self._started.pop()

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a process that has ended, or minus its signal."""
        with self._lock:
            self._socket.setblocking(False)
            while pid not in self._codes:
                try:
                    self._read()
                except BlockingIOError:
                    return None
            return self._codes[pid]

    def _read(self) -> None:
        packet = self._socket.recv(_LONGEST_ANSWER)
        assert packet, "the process that forks has ended"
        answer = json.loads(packet)
        if "code" in answer:
            self._codes[answer["pid"]] = answer["code"]
        else:
            self._started.append(answer["pid"])


@cache
def _server(of_process: int) -> _Server:
    return _Server()


class Forked:
    """A command that runs, with what tests use of `subprocess.Popen`. Its output is read at its end."""

    def __init__(self, arguments: list[object], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.args = [str(argument) for argument in arguments]
        self._output, self._errors = TemporaryFile(), TemporaryFile()  # noqa: SIM115
        request: dict[str, object] = {"arguments": self.args, "cwd": str(cwd), "env": dict(env or os.environ)}
        self._forking = _server(os.getpid())
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), self._output.fileno(), self._errors.fileno()]
            self.pid = self._forking.start(request, descriptors)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._forking.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises subprocess.TimeoutExpired."""
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_POLL_S)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return what was printed. Raises subprocess.TimeoutExpired."""
        self.wait(timeout)
        for file in (self._output, self._errors):
            file.seek(0)
        return self._output.read().decode(), self._errors.read().decode()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def fork(
    *arguments: object, cwd: Path, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `python ARGUMENTS` to its end."""
    running = Forked([*arguments], cwd=cwd, env=env)
    output, errors = running.communicate()
    assert running.returncode is not None
    return subprocess.CompletedProcess(running.args, running.returncode, output, errors)

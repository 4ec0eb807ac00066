"""Child processes of a run: each has a limit of time, and none outlives the run."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from threading import Condition, Timer
from types import TracebackType
from typing import Any, Self

from answers import BEGUN

from dpprof.process import END_WITH

_LAST_SAID = 600
_TRIES = 2  # of a line that a process did not read


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self._at - time.monotonic())


def environment_of(site: Path | None, project: Path) -> dict[str, str]:
    """Return the variables of child processes: packages of `site`, and an end with this process."""
    paths = [str(path) for path in (site, project) if path] + [os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        END_WITH: str(os.getpid()),
    }


def end(process: "subprocess.Popen[Any]") -> None:
    """Kill a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_child(command: list[str], log: Path, limit_s: float, environment: dict[str, str]) -> str:
    """Run a command with its output in a file. Return why it did not end well; empty if it did.

    What the command wrote last comes with the reason.
    """
    with log.open("ab") as output:
        begins = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        why = ended(process, limit_s)
    said = log.read_bytes()[begins:].decode(errors="replace").strip()
    return f"{why}: {said[-_LAST_SAID:]}" if why and said else why


def ended(process: "subprocess.Popen[Any]", limit_s: float) -> str:
    """Wait for a process, and return why it did not end well; empty if it did."""
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"not over after {limit_s:.0f} s"
    finally:
        end(process)
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}" if code else ""


class Server:
    """A process that answers lines of JSON (`answers.py`). A context manager; `is_over` at the deadline.

    One that was killed is started again for the next line, also if it dies before it has read that one.
    """

    def __init__(self, command: list[str], environment: dict[str, str], deadline: Deadline) -> None:
        self._command, self._environment, self._deadline = command, environment, deadline
        self._process = self._started()
        self._timer = Timer(deadline.left_s, self._end)
        self.is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._end()

    def _started(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
            text=True,
        )

    def _end(self) -> None:
        self.is_over = True
        end(self._process)

    def ask(self, settings: dict[str, Any], limit_s: int) -> dict[str, Any]:
        """Return the answer; one of kind `killed` if the process ends before it has answered."""
        for _ in range(_TRIES):
            has_begun, answer = self._asked(settings | {"limit_s": limit_s})
            if answer is not None:
                return answer
            end(self._process)  # it may still be closing down
            if has_begun or self.is_over:
                break
        kind, why = (
            ("timeout", "the stage was over") if self.is_over else ("killed", "its process was killed")
        )
        return {"settings": settings, "kind": kind, "error": why}

    def _asked(self, line: dict[str, Any]) -> tuple[bool, dict[str, Any] | None]:
        """Return whether the process has read the line, and its answer if there is one."""
        if self._process.poll() is not None and not self.is_over:
            self._process = self._started()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(line) + "\n")
            stdin.flush()
        has_begun = False
        for said in stdout:
            has_begun = has_begun or said == BEGUN
            if said.startswith('{"settings"'):
                return True, json.loads(said)
        return has_begun, None


class Budget:
    """Bytes that processes running at the same time may take together."""

    def __init__(self, limit: float) -> None:
        self._limit, self._taken = limit, 0
        self._changed = Condition()

    def take(self, num_bytes: int) -> None:
        """Wait until so many are free, or all are."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + num_bytes <= self._limit)
            self._taken += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Return bytes that were taken."""
        with self._changed:
            self._taken -= num_bytes
            self._changed.notify_all()

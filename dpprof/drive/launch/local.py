"""Runs an experiment, or any other command, in a child process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

from dpprof.drive.launch.exit import Exit
from dpprof.drive.launch.kernel_oom import oom_kill_counts
from dpprof.process import END_WITH, finish_undisturbed, peak_rss_bytes
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.log_lines import SAID

_POLL_S = 0.25
_GRACE_S = 5.0


def launch(folder: RunFolder, timeout_s: float, on_line: Callable[[str], None], stop: Event) -> Exit:
    """Start `python -m dpprof.measure`, follow its log until it ends or `timeout_s` is over."""

    def tell(line: str) -> None:
        if line.startswith(SAID):
            on_line(line.removeprefix(SAID))

    command = [sys.executable, "-m", "dpprof.measure", str(folder.path)]
    return run_logged(command, folder.log, timeout_s, tell, stop)


def run_logged(
    command: Sequence[str], log_path: Path, timeout_s: float, on_line: Callable[[str], None], stop: Event
) -> Exit:
    """Run a command to its end, its output in a file; `on_line` gets each line of it.

    Ctrl-C (KeyboardInterrupt) stops the child and is reported in the Exit, not raised; so does `stop`, for
    threads, which no signal reaches.
    """
    oom_kills_before = oom_kill_counts()
    started = time.monotonic()
    timed_out = interrupted = False
    peak_rss = None
    with open(log_path, "w+", encoding="utf-8", errors="replace") as log:
        # A session of its own: Ctrl-C in the terminal reaches the driving process alone, which then
        # decides; and whatever the child starts can be stopped with it.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {END_WITH: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        )
        with open(log_path, encoding="utf-8", errors="replace") as reader:
            try:
                while child.poll() is None:
                    peak_rss = peak_rss_bytes(child.pid) or peak_rss
                    for line in reader:
                        on_line(line.strip())
                    if stop.is_set():
                        interrupted = True
                        break
                    if time.monotonic() - started > timeout_s:
                        timed_out = True
                        break
                    time.sleep(_POLL_S)
            except KeyboardInterrupt:
                interrupted = True
                finish_undisturbed()
            finally:
                _stop(child)
            for line in reader:  # what it said last
                on_line(line.strip())
    return Exit(
        code=child.returncode,
        timed_out=timed_out,
        interrupted=interrupted,
        oom_killed=any(now > before for now, before in zip(oom_kill_counts(), oom_kills_before, strict=True)),
        peak_rss=peak_rss,
    )


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End the child and all that it started: ask first, then kill. Returns when it is gone."""
    with suppress(subprocess.TimeoutExpired):
        if child.poll() is None:
            _signal_group(child, signal.SIGTERM)
            child.wait(_GRACE_S)
    _signal_group(child, signal.SIGKILL)
    child.wait()


def _signal_group(child: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)

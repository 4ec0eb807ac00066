"""A dpprof command in a process of its own, to be disturbed while it runs."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from conftest import environment, lay_out_store

Process = subprocess.Popen[str]


def started(
    folder: Path,
    arguments: list[str],
    until: Callable[[], object],
    program: Sequence[str] = ("-m", "dpprof"),
    **more: str,
) -> Process:
    """Start a command in a folder with a store of its own, and wait until something holds.

    It may be another program's; further environment variables as keywords.
    """
    lay_out_store(folder)
    command, pipe = [sys.executable, *program, *arguments], subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder) | more, stdout=pipe, stderr=pipe, text=True
    )
    deadline = time.monotonic() + 120
    try:
        while not until():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    except BaseException:
        process.terminate()  # and what it started
        raise
    return process

"""A dpprof command in a process of its own, to be disturbed while it runs."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import environment, lay_out_store

Process = subprocess.Popen[str]


def started(folder: Path, arguments: list[str], until: Callable[[], object]) -> Process:
    """Start a command in a folder with a store of its own, and wait until something holds."""
    lay_out_store(folder)
    command, pipe = [sys.executable, "-m", "dpprof", *arguments], subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True
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

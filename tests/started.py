"""A dpprof command in a process of its own, to be disturbed while it runs."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from conftest import environment, lay_out_store
from forked import Forked

Process = Forked
P = TypeVar("P", Forked, subprocess.Popen[str])


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
    return awaited(Forked([*program, *arguments], cwd=folder, env=environment(folder) | more), until)


def with_pipes(
    folder: Path, arguments: list[str], until: Callable[[], object], **more: str
) -> "subprocess.Popen[str]":
    """The same, with pipes for its output that a test may close."""
    lay_out_store(folder)
    command, pipe = [sys.executable, "-m", "dpprof", *arguments], subprocess.PIPE
    env = environment(folder) | more
    return awaited(subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True), until)


@contextmanager
def store_away(folder: Path) -> Iterator[None]:
    """Take the folder's store away; a folder of its name is in its place meanwhile."""
    database, away = folder / "mlflow.db", folder / "away.db"
    database.rename(away)
    database.mkdir()
    yield
    database.rmdir()
    away.rename(database)


def awaited(process: P, until: Callable[[], object]) -> P:
    """Wait until something holds while a process runs; if it does not come, the process ends."""
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

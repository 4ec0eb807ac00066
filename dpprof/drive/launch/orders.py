"""Orders to processes that were started on another machine: a file there says what is asked of them."""

import contextlib
import time
from pathlib import Path

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.ranks import Ranks

CANCEL, FOLLOW = "cancel", "follow"
# How often whoever runs there looks at the processes, and for orders.
POLL_S = 0.25


def give(order: str, told: Path) -> None:
    """Ask processes that look for a file to end: CANCEL, or FOLLOW if ranks elsewhere have failed."""
    with contextlib.suppress(OSError):  # they have ended, and the folder has gone
        told.write_text(order)


def obey(told: Path, processes: Child | Ranks) -> None:
    """Do what the file says, if there is one."""
    with contextlib.suppress(OSError):
        order = told.read_text()
        if order == CANCEL:
            processes.cancel()
        elif order == FOLLOW:
            processes.follow()


def end(processes: Child | Ranks) -> None:
    """Leave nothing running."""
    processes.cancel()
    while processes.poll() is None:
        time.sleep(POLL_S)

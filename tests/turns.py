"""Which tests run at a time when pytest has several workers: one marked `alone` waits until no other does."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold a turn: beside others, or alone.

    Two locks, files in the folder that the workers share: who waits to be alone holds the gate, so that the
    others cannot go on overtaking it.
    """
    mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(folder / "room.lock", "w") as room:
        with open(folder / "gate.lock", "w") as gate:
            fcntl.flock(gate, mode)
            fcntl.flock(room, mode)
        yield

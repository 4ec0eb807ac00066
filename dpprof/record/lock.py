"""Folder locks: one process at a time writes. The kernel frees the lock of a killed process."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpprof.errors import ConfigError

LOCK = ".lock"
# Errors of file systems without such locks, such as some cluster file systems.
_UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder. Raises ConfigError naming the holder if it is taken."""
    path = folder.absolute() / LOCK
    descriptor = _open_locked(path)
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
        yield
    finally:
        if _is_at(path, descriptor):
            path.unlink()
        os.close(descriptor)


def left_by(folder: Path) -> str:
    """Return who held the lock of a folder and was killed; empty if nobody."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    except OSError:  # in use, or locks are not supported
        return ""
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise ConfigError(f"{path.parent} is in use by {holder}") from None
        except OSError as error:
            if error.errno not in _UNLOCKABLE:
                os.close(descriptor)
                raise
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # the previous holder removed the file after it was opened here


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

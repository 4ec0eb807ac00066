"""One process at a time writes into a folder. The kernel frees the lock of a process that was killed."""

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
# Of file systems that know no such lock, as some that are shared by a cluster.
_UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder that exists. Raises ConfigError, which says who has it, if another does."""
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
        os.close(descriptor)  # whoever had the lock removed the file after it was opened here


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""The log of a job: a process writes it, the driving process follows it. Neither needs much room for that."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

# What a log may grow to, and how much of its beginning and of its end are kept then.
LARGEST = 64 * 2**20
KEPT = 2**20
# How much is read at a time, and how much of a line.
AT_ONCE = 2**20
LONGEST_LINE = 2**14
CUT = b"\n[... dpprof left out a part here: the log was too large ...]\n"


class FollowedLog:
    """A log file that another process writes, held open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._at = 0
        self._begun = b""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def new_lines(self) -> list[str]:
        """The lines that were ended since the last call. Of a log that grows too fast some are left out."""
        size = os.fstat(self.descriptor).st_size
        if not 0 <= size - self._at <= AT_ONCE:
            self._at, self._begun = max(0, size - AT_ONCE), b""
        data = os.pread(self.descriptor, size - self._at, self._at)
        self._at += len(data)
        lines = (self._begun + data).splitlines(keepends=True)
        self._begun = lines.pop()[:LONGEST_LINE] if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        return [_text(line) for line in lines]

    def last_lines(self) -> list[str]:
        """The same once the job has ended, with a line that it did not end."""
        lines = self.new_lines()
        return [*lines, _text(self._begun)] if self._begun else lines


class JobLog(FollowedLog):
    """A new log file, held open: what a job makes of its name does no harm here.

    Processes get `descriptor`, and what they write goes to the end of the file, wherever that is by then.
    """

    def __init__(self, path: Path) -> None:
        remove(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        super().__init__(os.open(path, flags, 0o666))

    def new_lines(self) -> list[str]:
        """The same, of a log that is kept from growing without end."""
        if os.fstat(self.descriptor).st_size > LARGEST:
            self._cut()
        return super().new_lines()

    def _cut(self) -> None:
        """Keep the beginning and the end of what was written."""
        size = os.fstat(self.descriptor).st_size
        unread = max(0, size - self._at)
        end = os.pread(self.descriptor, KEPT, size - KEPT)
        os.ftruncate(self.descriptor, KEPT)
        with suppress(OSError):  # a full disk
            os.write(self.descriptor, CUT + end)
        size = os.fstat(self.descriptor).st_size
        self._at = size - min(unread, len(end))


def _text(line: bytes) -> str:
    return line[:LONGEST_LINE].decode(errors="replace").strip()


def remove(path: Path) -> None:
    """An earlier job may have left anything at a log's place: a folder, a link, a pipe."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

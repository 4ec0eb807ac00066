"""Log of a job, written by its process and followed by the driving process, in bounded space."""

import os
from contextlib import suppress
from pathlib import Path

# Largest size of a log, and how much of its beginning and end are kept when it is cut.
LARGEST = 64 * 2**20
KEPT = 2**20
# Most bytes read at a time, and most of one line.
AT_ONCE = 2**20
LONGEST_LINE = 2**14
CUT = b"\n[... dpprof left out a part here: the log was too large ...]\n"


class FollowedLog:
    """Open log file that another process writes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._at = 0
        self._begun = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def new_lines(self) -> list[str]:
        """Return the lines completed since the last call; skips some of a log that grows too fast."""
        size = os.fstat(self.descriptor).st_size
        if not 0 <= size - self._at <= AT_ONCE:
            self._at, self._begun = max(0, size - AT_ONCE), b""
        data = os.pread(self.descriptor, size - self._at, self._at)
        self._at += len(data)
        lines = (self._begun + data).splitlines(keepends=True)
        self._begun = lines.pop()[:LONGEST_LINE] if lines and not lines[-1].endswith((b"\n", b"\r")) else b""
        return [_text(line) for line in lines]

    def last_lines(self) -> list[str]:
        """Return the remaining lines once the job has ended, including an unfinished one."""
        lines = self.new_lines()
        return [*lines, _text(self._begun)] if self._begun else lines


class JobLog(FollowedLog):
    """New log file, held open: what a job does to its path does no harm. Processes append to `descriptor`."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        super().__init__(os.open(path, flags, 0o666))

    def new_lines(self) -> list[str]:
        """Return the new lines; cuts a log that is too large."""
        if os.fstat(self.descriptor).st_size > LARGEST:
            self._cut()
        return super().new_lines()

    def _cut(self) -> None:
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

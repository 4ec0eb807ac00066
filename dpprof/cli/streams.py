"""Standard streams that survive closed pipes, any character, and control characters; a spinner."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Errors of a write that nobody reads: closed pipe, lost terminal.
_UNREAD = (errno.EPIPE, errno.EIO)
# C0 except newline and tab, DEL, C1, and marks of text direction.
_CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
    - {ord("\n"), ord("\t")}
)


def plain(text: str) -> str:
    """Remove control characters."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def complain(text: str) -> None:
    """Print a line to standard error."""
    print(plain(text), file=sys.stderr)


def put(content: str | bytes) -> None:
    """Write data to standard output; a terminal gets no control characters."""
    if isinstance(content, str) and sys.stdout.isatty():
        content = plain(content)
    click.echo(content, nl=False)


class _Lasting(io.FileIO):
    """A standard stream that drops output after a failed write; `lost` is the error unless nobody reads."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.lost: OSError | None = None
        self._is_gone = False

    def write(self, data: "ReadableBuffer") -> int:
        """Write or drop data. Returns the number of bytes."""
        if not self._is_gone:
            try:
                return super().write(data)
            except OSError as error:
                self._is_gone = True
                self.lost = None if error.errno in _UNREAD else error
        return memoryview(data).nbytes


_opened: list[_Lasting] = []


def open_streams() -> None:
    """Replace the standard streams by lasting ones; streams already replaced by others stay."""
    # Closed streams become the null device, so that no opened file gets their numbers.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout, 1, "replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr, 2, "backslashreplace")


def _lasting(stream: TextIO | None, number: int, errors: str) -> TextIO:
    raw = _Lasting(number)
    _opened.append(raw)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding if stream else "utf-8",
        errors=errors,
        line_buffering=number == 2 or raw.isatty(),
        write_through=bool(getattr(stream, "write_through", False)),
    )


def lost_output() -> OSError | None:
    """Return why printed output was lost (the disk is full), unless nobody reads it."""
    if not sys.stdout.closed:  # as by a script that was watched
        sys.stdout.flush()
    return next((raw.lost for raw in _opened if raw.lost is not None), None)


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """Show a spinner with a few words until the body ends; nothing without a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_interactive:
        yield
        return
    with console.status(for_what):
        yield

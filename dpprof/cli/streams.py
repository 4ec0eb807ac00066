"""Standard output and standard error: no reader that goes away and no character ends a command, and text from
outside moves no cursor."""

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# What a write gives when nobody reads any more: the pipe was closed, or the terminal is gone.
_UNREAD = (errno.EPIPE, errno.EIO)
# C0 but for newline and tab, DEL and C1; and the marks that turn the direction of a line.
_CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
    - {ord("\n"), ord("\t")}
)
_LONGEST_MESSAGE = 400


def plain(text: str) -> str:
    """The text without control characters: a name or a message may hold any."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def is_text(argument: str) -> bool:
    """Whether an argument could be decoded; neither a page nor MLflow can hold one that could not."""
    return argument.isascii() or not any("\ud800" <= character <= "\udfff" for character in argument)


def cut(text: str) -> str:
    """A message whose length others decide, kept short."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."


def complain(text: str) -> None:
    """A line on standard error."""
    print(plain(text), file=sys.stderr)


def put(content: str | bytes) -> None:
    """Data on standard output, as it is; a terminal gets no control characters."""
    if isinstance(content, str) and sys.stdout.isatty():
        content = plain(content)
    click.echo(content, nl=False)


class _Lasting(io.FileIO):
    """A standard stream to which everything can be written. After a write that failed it drops all that
    follows; `lost` is the reason, unless it is that nobody reads.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.lost: OSError | None = None
        self._is_gone = False

    def write(self, data: "ReadableBuffer") -> int:
        """Write, or drop. Returns the number of bytes."""
        if not self._is_gone:
            try:
                return super().write(data)
            except OSError as error:
                self._is_gone = True
                self.lost = None if error.errno in _UNREAD else error
        return memoryview(data).nbytes


_opened: list[_Lasting] = []


def open_streams() -> None:
    """Replace the process's standard streams by lasting ones. Those that were closed lead nowhere, so that no
    file that is opened takes their numbers. Streams that somebody put in their place stay.
    """
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
    """Why something that was printed is lost, if anything is that somebody may miss: the disk is full."""
    sys.stdout.flush()
    return next((raw.lost for raw in _opened if raw.lost is not None), None)

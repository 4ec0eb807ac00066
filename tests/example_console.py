"""Consoles that keep what is printed on them."""

import io

from rich.console import Console, RenderableType


def terminal(width: int = 80, encoding: str = "utf-8") -> Console:
    """A terminal of a width, without colours."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    return Console(file=file, width=width, force_terminal=True, color_system=None, highlight=False)


def printed(console: Console) -> str:
    """What was printed, without the blanks at the ends of lines."""
    file = console.file
    assert isinstance(file, io.TextIOWrapper)
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    text = file.buffer.getvalue().decode(file.encoding)
    return "\n".join(line.rstrip() for line in text.splitlines())


def drawn(thing: RenderableType, width: int = 80) -> str:
    """Something as a terminal shows it."""
    console = terminal(width)
    console.print(thing)
    return printed(console)

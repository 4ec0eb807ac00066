"""A real command in a terminal of its own, drawn as an SVG by rich."""

import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

_ROWS = 60
# What a live display draws and erases again lies between hiding the cursor and showing it.
_LIVE = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h", re.DOTALL)
_CURSOR = re.compile(r"\x1b\[[0-9]*[AKJ]|\r")


def record(command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int) -> str:
    """Run a command in a terminal so many columns wide; gives what stays on it, with its colours."""
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    pid, descriptor = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        os.chdir(folder)
        os.execvpe(command[0], list(command), {**environment, **terminal})
    written = b""
    while True:
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # how Linux tells that the terminal has no writer left
            break
        if not chunk:
            break
        written += chunk
    os.waitpid(pid, 0)
    text = written.decode().replace("\r\n", "\n")
    return _CURSOR.sub("", _LIVE.sub("", text)).strip("\n")


def to_svg(prompt: str, text: str, columns: int, title: str) -> str:
    """A terminal window with the command line and what it printed."""
    console = Console(
        width=columns,
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    console.print(Text(f"$ {prompt}", style="bold"))
    console.print(Text.from_ansi(text))
    return console.export_svg(title=title)

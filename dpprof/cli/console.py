"""The console that commands print to, and prose on it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dpprof.cli.streams import plain
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS
from dpprof.vocabulary.trainers import TRAINERS

# Wide enough for a table's row where there is no terminal to ask.
_WIDTH_OF_FILES = 160
# The colour of what the gradient check says.
VERDICT_COLORS = {PASS: "green", CANNOT_TELL: "yellow", FAIL: "red"}


class PlainConsole(Console):
    """A console that shows text without control characters; its own colours and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces that are shown."""
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable()
            yield segment if is_plain else Segment(plain(segment.text), segment.style)


def open_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough for a file; of standard error if wanted."""
    console = PlainConsole(highlight=False, stderr=stderr)
    if console.is_terminal:
        return console
    return PlainConsole(highlight=False, stderr=stderr, width=_WIDTH_OF_FILES)


def write(console: Console, text: str | Text) -> None:
    """A paragraph. A terminal breaks it between words; in a file it stays one line, which can be searched.

    What has no blanks, as an address, stays in one piece everywhere.
    """
    text = Text(text) if isinstance(text, str) else text
    console.print(text, soft_wrap=not console.is_terminal or " " not in text.plain)


def write_point(console: Console, text: str) -> None:
    """A point of a list, its lines set in."""
    if not console.is_terminal:
        console.print(Text(f"  - {text}"), soft_wrap=True)
        return
    grid = Table.grid()
    grid.add_row("  - ", Text(text))
    console.print(grid)


def counted(number: int, one: str, several: str = "") -> str:
    """A number of things: `1 experiment`, `16 experiments`."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def warn(console: Console, text: str) -> None:
    """A paragraph that must be seen."""
    write(console, Text.assemble(("warning: ", "yellow"), text))


def short_run_name(name: str) -> str:
    """A run's name with its trainer's short name."""
    for info in TRAINERS.values():
        if name.startswith(f"{info.name}_"):
            return f"{info.short_name} {name.removeprefix(info.name + '_')}"
    return name

"""Console for the commands' output."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dpprof.cli.streams import plain
from dpprof.pages.terminal import write
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS
from dpprof.vocabulary.trainers import TRAINERS

# Width for tables without a terminal.
_WIDTH_OF_FILES = 160
VERDICT_COLORS = {PASS: "green", CANNOT_TELL: "yellow", FAIL: "red"}


class PlainConsole(Console):
    """A console that removes control characters from text; its own colours and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as plain segments."""
        for segment in super().render(renderable, options):
            is_plain = segment.control or segment.text.isprintable()
            yield segment if is_plain else Segment(plain(segment.text), segment.style)


def open_console(*, stderr: bool = False) -> Console:
    """Open a console for standard output or error, wide enough for tables in a file."""
    console = PlainConsole(highlight=False, stderr=stderr)
    if console.is_terminal:
        return console
    return PlainConsole(highlight=False, stderr=stderr, width=_WIDTH_OF_FILES)


def warn(console: Console, text: str) -> None:
    """Print a warning."""
    write(console, Text.assemble(("warning: ", "yellow"), text))


def short_run_name(name: str) -> str:
    """Replace the trainer in a run's name by its short name."""
    for info in TRAINERS.values():
        if name.startswith(f"{info.name}_"):
            return f"{info.short_name} {name.removeprefix(info.name + '_')}"
    return name

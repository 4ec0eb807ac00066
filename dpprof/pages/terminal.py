"""Show documents in the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as RichText

from dpprof.pages import document
from dpprof.pages.document import Chart, Columns, Document, Heading, Part, Points, Sentence, Table
from dpprof.pages.fitted_table import FittedTable, plain


def show(console: Console, shown: Document) -> None:
    """Print all parts without the title, which the command has announced, and without charts."""
    above: Part | None = None
    for part in shown.parts:
        is_for_pages = isinstance(part, Chart) or (isinstance(part, Points) and part.folded_under)
        if not is_for_pages:
            if not _belongs(part, above):
                console.print()
            _show(console, part)
            above = part


def _belongs(part: Part, above: Part | None) -> bool:
    """Tell whether no blank line comes between: points follow their sentence, notes and warnings others."""
    if not isinstance(above, Sentence):
        return False
    return isinstance(part, Points) or (
        isinstance(part, Sentence) and bool(part.tone) and part.tone == above.tone
    )


def _show(console: Console, part: Part) -> None:
    match part:
        case Heading(text):
            console.print(RichText(text, "bold"))
        case Sentence(text, "warning"):
            write(console, RichText.assemble(("warning: ", "yellow"), plain(text)))
        case Sentence(text, "note"):
            write(console, RichText.assemble((plain(text).plain, "dim")))
        case Sentence(text):
            write(console, plain(text))
        case Points(items):
            for item in items:
                write_point(console, plain(item))
        case Table():
            console.print(FittedTable(part))


def write(console: Console, text: str | RichText) -> None:
    """Print a paragraph: wrapped in a terminal, one line in a file, so that it can be searched.

    Text without blanks, such as a URL, is never broken.
    """
    text = RichText(text) if isinstance(text, str) else text
    console.print(text, soft_wrap=not console.is_terminal or " " not in text.plain)


def write_point(console: Console, text: str | RichText) -> None:
    """Print an indented list item."""
    text = RichText(text) if isinstance(text, str) else text
    if not console.is_terminal:
        console.print(RichText.assemble("  - ", text), soft_wrap=True)
        return
    grid = Grid.grid()
    grid.add_row("  - ", text)
    console.print(grid)


def table(title: str, columns: Columns, rows: Iterable[Sequence[object]]) -> FittedTable:
    """Return a table of values that fits the terminal."""
    return FittedTable(document.table(title, columns, rows))

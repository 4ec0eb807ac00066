"""What commands print: consoles wide enough for tables, and a comparison in words and tables."""

from rich.console import Console
from rich.markup import escape

from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.markdown import tables

# Wide enough for a table's row where there is no terminal to ask.
_WIDTH_OF_FILES = 160


def open_console(*, soft_wrap: bool = False) -> Console:
    """The console for tables: as wide as the terminal, or wide enough for a file."""
    console = Console(highlight=False, soft_wrap=soft_wrap)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=soft_wrap, width=_WIDTH_OF_FILES)
    return console


def print_comparison(console: Console, data: ComparisonData) -> None:
    """A comparison's verdict, its doubts and its tables."""
    console.print()
    for found in data.findings:
        console.print(f"[b]{escape(found.topic)}.[/] {escape(found.text)}")
        for point in found.points:
            console.print(f"  - {escape(point)}")
    for doubt in data.doubts:
        console.print(f"[yellow]warning:[/] {escape(doubt)}")
    for table in tables(data):
        console.print()
        console.print(escape(table.rstrip()))
    console.print()

"""What a fit found, in the terminal."""

from rich.console import Console

from dpprof.cli.console import write
from dpprof.cli.fitted_tables import FittedTable, right, table
from dpprof.vocabulary.trainers import trainer_info


def print_answers(console: Console, text: str) -> None:
    """The answers, which come as Markdown: paragraphs, and tables with a rule under their headings."""
    lines: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip().replace("&lt;", "<") for cell in line.strip("|").split("|")])
            continue
        if lines:
            console.print(_drawn(lines))
            lines = []
        if not line.startswith("# "):
            write(console, line)


def _drawn(lines: list[list[str]]) -> FittedTable:
    headings, rule, *rows = lines
    columns = [
        (name, right if dashes.endswith(":") else str) for name, dashes in zip(headings, rule, strict=True)
    ]
    return table("", columns, [tuple(trainer_info(cell).short_name for cell in row) for row in rows])

"""What a fit found, in the terminal."""

from rich.console import Console

from dpprof.cli.console import write
from dpprof.cli.tables import FittedTable
from dpprof.vocabulary.trainers import trainer_info


def print_answers(console: Console, text: str) -> None:
    """The answers, which come as Markdown: paragraphs, and tables with a rule under their headings."""
    table: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip().replace("&lt;", "<") for cell in line.strip("|").split("|")])
            continue
        if table:
            console.print(_drawn(table))
            table = []
        if not line.startswith("# "):
            write(console, line)


def _drawn(lines: list[list[str]]) -> FittedTable:
    headers, rule, *rows = lines
    for row in rows:
        row[:] = [trainer_info(cell).short_name for cell in row]
    return FittedTable("", headers, [not dashes.endswith(":") for dashes in rule], rows)

"""An advice as Markdown: the answer, and the tables behind it."""

from dpprof.reports.advice.data import AdviceData, Row
from dpprof.reports.markdown_table import markdown_table

_HEADER = ["change", "needs", "difference", "FLOPs", "bytes moved", "least ms", "least time", "alters", ""]


def render(data: AdviceData) -> str:
    """The whole text."""
    parts = [f"# {data.name}\n", f"{data.what}.\n", f"**{data.answer}**\n", _table([data.given, *data.rows])]
    parts.append(f"\n{data.order} {data.legend}\n")
    if data.together is not None:
        parts += ["## Together\n", _table([data.given, data.together])]
        parts.append(
            "\nPut together one after the other until they fit, the physical batch made smaller last.\n"
        )
    if data.arithmetic_rows:
        header = ["change", "needs", "difference", "FLOPs"]
        rows = [[name, *figures] for name, *figures, _ in data.arithmetic_rows]
        parts += ["## By arithmetic, not built in\n", markdown_table(header, rows, right=1)]
        parts += [*(f"- {name}: {how}." for name, *_, how in data.arithmetic_rows), ""]
    options = [f"- {row.name}: `{row.options}`" for row in (*data.rows, data.together) if row is not None]
    if options:
        parts += ["## How to make them\n", *options, ""]
    if data.notes:
        parts += ["## Left out\n", *(f"- {note}" for note in data.notes), ""]
    parts += ["## What it rests on\n", *(f"- {line}" for line in data.rests_on), ""]
    return "\n".join(parts)


def _table(rows: list[Row]) -> str:
    has_times = any(row.least for row in rows)
    header = [name for name in _HEADER if has_times or not name.startswith("least")]
    return markdown_table(header, [_cells(row, has_times=has_times) for row in rows], right=1)


def _cells(row: Row, *, has_times: bool) -> list[str]:
    times = [row.least, row.least_change] if has_times else []
    return [row.name, row.needs, row.saves, row.flops, row.moved, *times, row.alters, row.verdict]

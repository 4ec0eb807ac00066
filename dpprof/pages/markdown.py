"""Render documents as Markdown that is readable as plain text."""

from dpprof.pages import document as doc
from dpprof.vocabulary.formats import escape, markdown_table


def render(document: doc.Document) -> str:
    """Return the whole text, without charts."""
    parts = [_part(part) for part in document.parts]
    return "\n".join([f"# {escape(document.title)}\n", *(f"{text}\n" for text in parts if text)])


def _part(part: doc.Part) -> str:
    match part:
        case doc.Heading(text):
            return f"## {escape(text)}"
        case doc.Sentence(text):
            return escape(words(text))
        case doc.Points(items, folded_under):
            return "" if folded_under else "\n".join(f"- {escape(words(item))}" for item in items)
        case doc.Table():
            return _table(part)
        case doc.Chart():
            return ""


def words(text: doc.Text) -> str:
    """Return a text with emphasis as asterisks."""
    return "".join(
        f"**{one.text}**"
        if isinstance(one, doc.Styled) and one.text and one.style != "muted"
        else doc.bare(one)
        for one in doc.inlines(text)
    )


def _table(table: doc.Table) -> str:
    of_bars = {i for row in table.rows for i, cell in enumerate(row) if isinstance(cell, doc.Bar)}
    shown = [i for i in range(len(table.columns)) if i not in of_bars]
    rows: list[list[str]] = []
    for i, row in enumerate(table.rows):
        if i in table.groups:
            rows.append([table.groups[i], *[""] * (len(shown) - 1)])
        rows.append([words(cell) for cell in (row[i] for i in shown) if not isinstance(cell, doc.Bar)])
    made = markdown_table(
        [table.columns[i].heading for i in shown],
        rows,
        [place for place, i in enumerate(shown) if table.columns[i].is_figure],
    )
    return (f"**{table.title}**\n\n" if table.title else "") + made.rstrip()

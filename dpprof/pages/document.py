"""Content of a page for all media: `html`, `markdown` and `terminal` each render a `Document`.

A page is a function from findings to a Document. Text in backticks is code.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from dpprof.findings.verdict.finding import Finding
from dpprof.vocabulary.trainers import short_name

Style = Literal["bold", "good", "doubtful", "bad", "muted"]
Tone = Literal["", "note", "warning", "answer"]


@dataclass(frozen=True)
class Styled:
    """Highlighted words, bold or coloured by meaning."""

    text: str
    style: Style = "bold"


@dataclass(frozen=True)
class TrainerName:
    """A trainer by its short name; HTML adds its symbol."""

    name: str


@dataclass(frozen=True)
class Keyed:
    """A text; HTML adds its symbol or colour, as in a legend."""

    text: str
    key: Markup


class BarPart(NamedTuple):
    """A part of a bar with a `share` of the room; `title` tells it when the mouse is over it."""

    share: float
    color: str
    title: str


@dataclass(frozen=True)
class Bar:
    """A bar with length `share` of the room (0 to 1) and a mark at `limit`. Not in Markdown.

    HTML stacks its `parts`, if it has any.
    """

    share: float
    limit: float | None = None
    color: str = ""
    parts: Sequence[BarPart] = ()


Inline = str | Styled | TrainerName | Keyed
Text = Inline | tuple[Inline, ...]
Cell = Text | Bar


@dataclass(frozen=True)
class Heading:
    """A heading below the title."""

    text: str


@dataclass(frozen=True)
class Sentence:
    """A paragraph: plain, a `note` in small print, a `warning`, or the main `answer`."""

    text: Text
    tone: Tone = ""


@dataclass(frozen=True)
class Points:
    """A list; with `folded_under`, it unfolds below that line in HTML and is left out elsewhere."""

    items: Sequence[Text]
    folded_under: str = ""


@dataclass(frozen=True)
class Chart:
    """A drawing, for HTML only; `legend` explains its marks, `note` in small print what it shows."""

    svg: Markup
    legend: Sequence[Text] = ()
    title: str = ""
    note: str = ""


class Column(NamedTuple):
    """A column; `shown` turns values into text. Texts (`str`) are left-aligned, figures right-aligned."""

    heading: str
    shown: Callable[..., str]

    @property
    def is_figure(self) -> bool:
        """True for numbers, which are right-aligned."""
        return self.shown is not str


Columns = Sequence[tuple[str, Callable[..., str]]]
# A column with what it shows of a row.
ColumnOf = tuple[str, Callable[..., str], Callable[[Any], object]]


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; `bold` has the indices of emphasized rows.

    `groups` has headings within the table, by the index of the row that follows. With `has_total`
    the last row is about all others, is emphasized too, and stays below them when they are sorted.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    name: str = ""
    bold: Collection[int] = ()
    is_sortable: bool = True
    groups: Mapping[int, str] = field(default_factory=dict)
    has_total: bool = False


Part = Heading | Sentence | Points | Chart | Table


@dataclass(frozen=True)
class Document:
    """A page's title and its parts from top to bottom."""

    title: str
    parts: Sequence[Part]


def told(found: Finding | None) -> list[Part]:
    """Return a finding as a paragraph and its points; nothing without one."""
    if found is None:
        return []
    first = Sentence((Styled(f"{found.topic}."), f" {found.text}"))
    return [first, Points([str(point) for point in found.points])] if found.points else [first]


def table(title: str, columns: Columns, rows: Iterable[Sequence[object]], **more: Any) -> Table:
    """Make a table of values, formatted by their columns (heading and `shown`); `more` is as in `Table`."""
    made = [Column(*column) for column in columns]
    cells = [[_cell(column, value) for column, value in zip(made, row, strict=True)] for row in rows]
    return Table(made, cells, title, **more)


def table_of(rows: Iterable[Any], columns: Sequence[ColumnOf], title: str = "", **more: Any) -> Table:
    """Make a table of a row's values; `more` is as in `Table`."""
    shown = [[value(row) for _, _, value in columns] for row in rows]
    return table(title, [(heading, form) for heading, form, _ in columns], shown, **more)


def with_content(columns: Sequence[ColumnOf], rows: Sequence[Any]) -> list[ColumnOf]:
    """Return the columns that show something of some row."""
    return [column for column in columns if any(_shows(column[2](row)) for row in rows)]


def _shows(value: object) -> bool:
    return value is not None and (value.text if isinstance(value, Styled) else value) != ""


def _cell(column: Column, value: object) -> Cell:
    if isinstance(value, str | Styled | TrainerName | Keyed | Bar | tuple):
        return value
    return column.shown(value)


def figure(text: str) -> str:
    """Return a figure that already is text, for `Column.shown`."""
    return text


def bare(one: Inline) -> str:
    """Return the words of a piece without its look."""
    if isinstance(one, TrainerName):
        return short_name(one.name)
    return one if isinstance(one, str) else one.text


def inlines(text: Text) -> tuple[Inline, ...]:
    """Return the pieces of a text."""
    return text if isinstance(text, tuple) else (text,)

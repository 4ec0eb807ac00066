"""Tables that fit the terminal."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text as RichText

from dpprof.pages.document import Bar, Cell, Styled, Table, Text, bare, inlines

# Longer words are folded.
_LONGEST_WORD = 20
_LONGEST_BAR, _SHORTEST_BAR = 20, 4
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {"bold": "bold", "good": "green", "doubtful": "yellow", "bad": "red", "muted": "dim"}


def plain(text: Text) -> RichText:
    """Return a text in the terminal's colours."""
    pieces = [(bare(one), _STYLES[one.style] if isinstance(one, Styled) else "") for one in inlines(text)]
    return RichText.assemble(*pieces)


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of up to `width` characters; never empty unless the share is zero."""
    share = min(share, 1.0)
    if not share:
        return ""
    if ascii_only:
        return "#" * max(round(share * width), 1)
    full, part = divmod(max(round(share * width * 8), 1), 8)
    return "█" * full + (_EIGHTHS[part] if part else "")


@dataclass(frozen=True)
class _Column:
    heading: str
    cells: Sequence[Cell]
    is_left: bool
    ascii_only: bool

    @cached_property
    def has_bars(self) -> bool:
        return any(isinstance(cell, Bar) for cell in self.cells)

    def texts(self, width: int) -> list[RichText]:
        return [self._text(cell, width) for cell in self.cells]

    def _text(self, cell: Cell, width: int) -> RichText:
        if isinstance(cell, Bar):
            return RichText(bar(cell.share, width, ascii_only=self.ascii_only), cell.color)
        text = plain(cell)
        if self.ascii_only:
            text.plain = text.plain.replace("±", "+-")
        return text

    @cached_property
    def width(self) -> int:
        """Largest useful width."""
        if self.has_bars:
            return _LONGEST_BAR
        return max(cell_len(self.heading), *(text.cell_len for text in self.texts(0)), 0)

    @cached_property
    def least(self) -> int:
        """Smallest width: texts and headings are folded between words, figures never."""
        if self.has_bars:
            return _SHORTEST_BAR
        texts = [text.plain for text in self.texts(0)]
        parts = [word for text in texts for word in text.split()] if self.is_left else texts
        longest = max(map(cell_len, parts), default=0)
        words = [cell_len(word) for word in self.heading.split()]
        return max([min(_LONGEST_WORD, longest) if self.is_left else longest, *words])


@dataclass(frozen=True)
class FittedTable:
    """A table that fits the width: bars are shortened, long texts folded, and excess columns follow below.

    The first column is then repeated. Columns without any text are left out.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.table.title:
            yield RichText(self.table.title, "bold")
        columns = [
            _Column(
                column.heading, [row[i] for row in self.table.rows], not column.is_figure, options.ascii_only
            )
            for i, column in enumerate(self.table.columns)
        ]
        first, *others = [column for column in columns if any(map(len, column.texts(1)))] or columns
        while True:
            some = _fitting(first, others, options.max_width)
            others = others[len(some) :]
            yield from self._drawn([first, *some], options.max_width)
            if not others:
                return

    def _drawn(self, columns: list[_Column], room: int) -> Iterator[RichText | Grid]:
        """Draw columns in the room there is, narrowing bars, then the widest; a grid for each group."""
        gaps = len(columns) - 1
        gap = 2 if sum(column.least for column in columns) + 2 * gaps <= room else 1
        widths = [column.width for column in columns]
        while sum(widths) + gap * gaps > room:
            spare = [i for i, column in enumerate(columns) if widths[i] > column.least]
            if not spare:
                break
            widths[max(spare, key=lambda i: (columns[i].has_bars, widths[i]))] -= 1
        texts = [column.texts(width) for column, width in zip(columns, widths, strict=True)]
        rows = list(zip(*texts, strict=True))
        starts = sorted({0, *self.table.groups})
        yield _grid(columns, widths, gap)
        for start, end in itertools.pairwise([*starts, len(rows)]):
            if start in self.table.groups:
                yield RichText(self.table.groups[start], "dim")
            if start < end:
                yield _grid(columns, widths, gap, rows[start:end])


def _grid(
    columns: list[_Column], widths: list[int], gap: int, rows: Sequence[Sequence[RichText]] = ()
) -> Grid:
    """Return a grid of the rows, or of the headings alone."""
    made = Grid(
        header_style="bold dim", box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=not rows
    )
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "left" if column.is_left else "right"
        made.add_column(escape(column.heading), justify=justify, overflow="fold", width=width)
    for row in rows:
        made.add_row(*row)
    return made


def _fitting(first: _Column, others: list[_Column], room: int) -> list[_Column]:
    """Return the columns that fit beside the first one, at least one."""
    taken, count = first.least, 0
    for column in others:
        taken += 1 + column.least
        if taken > room and count:
            break
        count += 1
    return others[:count]

"""Tables in the terminal, from plain rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dpprof.vocabulary.formats import fixed

# What is longer is folded within the word.
_LONGEST_WORD = 20


def one(value: float | None) -> str:
    """A figure with one decimal; empty where nothing was measured."""
    return fixed(value, 1)


def two(value: float | None) -> str:
    """A figure with two decimals; empty where nothing was measured."""
    return fixed(value, 2)


def three(value: float | None) -> str:
    """A figure with three decimals; empty where nothing was measured."""
    return fixed(value, 3)


def whole(number: int) -> str:
    """A whole number."""
    return f"{number:,}"


def right(text: str) -> str:
    """A text that is a figure already: it stands to the right."""
    return text


@dataclass(frozen=True)
class _Column:
    """A column of texts under a heading."""

    heading: str
    texts: list[str]
    is_left: bool

    @property
    def width(self) -> int:
        """What it takes at most."""
        return max(cell_len(text) for text in [self.heading, *self.texts])

    @property
    def least(self) -> int:
        """What it takes at least: texts and headings are folded between words, figures never."""
        parts = [word for text in self.texts for word in text.split()] if self.is_left else self.texts
        longest = max(map(cell_len, parts), default=0)
        words = [cell_len(word) for word in self.heading.split()]
        return max([min(_LONGEST_WORD, longest) if self.is_left else longest, *words])


@dataclass(frozen=True)
class FittedTable:
    """A table of texts that fits the room there is: where it is too wide, long texts are folded, and what
    does not fit even so follows below, beside the first column again. Columns without any text are left out.
    """

    title: str
    columns: list[_Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table for the room that there is."""
        if self.title:
            yield Text(self.title, "bold")
        first, *others = [column for column in self.columns if any(column.texts)] or self.columns
        while True:
            some = _fitting(first, others, options.max_width)
            others = others[len(some) :]
            yield _drawn([first, *some], options.max_width)
            if not others:
                return


def _fitting(first: _Column, others: list[_Column], room: int) -> list[_Column]:
    """The columns that fit beside the first one, at least one."""
    taken, count = first.least, 0
    for column in others:
        taken += 1 + column.least
        if taken > room and count:
            break
        count += 1
    return others[:count]


def _drawn(columns: list[_Column], room: int) -> Table:
    """Columns in the room that there is; the widest give way first."""
    gaps = len(columns) - 1
    gap = 2 if sum(column.least for column in columns) + 2 * gaps <= room else 1
    widths = [column.width for column in columns]
    while sum(widths) + gap * gaps > room:
        spare = [i for i, column in enumerate(columns) if widths[i] > column.least]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    made = Table(header_style="bold dim", box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "left" if column.is_left else "right"
        made.add_column(escape(column.heading), justify=justify, overflow="fold", width=width)
    for row in zip(*(column.texts for column in columns), strict=True):
        made.add_row(*map(escape, row))
    return made


def table(
    title: str, columns: list[tuple[str, Callable[..., str]]], rows: Iterable[tuple[object, ...]]
) -> FittedTable:
    """A table of values; each column says how its own are shown, texts (`str`) to the left."""
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    made = [
        _Column(heading, list(map(shown, column)), is_left=shown is str)
        for (heading, shown), column in zip(columns, values, strict=True)
    ]
    return FittedTable(title, made)

"""Tables in the terminal, from plain rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from dpprof.vocabulary.formats import fixed

_NEVER_FOLDED = 16


def one(value: float | None) -> str:
    """A figure with one decimal; empty where nothing was measured."""
    return fixed(value, 1)


def two(value: float | None) -> str:
    """A figure with two decimals; empty where nothing was measured."""
    return fixed(value, 2)


def three(value: float | None) -> str:
    """A figure with three decimals; empty where nothing was measured."""
    return fixed(value, 3)


def right(text: str) -> str:
    """A text that is a figure already: it stands to the right."""
    return text


@dataclass(frozen=True)
class FittedTable:
    """A table of texts that leaves less room between its columns, and folds more, where it has to."""

    title: str
    headers: list[str]
    is_left: list[bool]
    rows: list[list[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table for the room that there is."""
        gap, widths = self._widths(options.max_width)
        made = Table(
            title=escape(self.title) or None,
            title_justify="left",
            title_style="bold",
            header_style="bold dim",
            box=None,
            pad_edge=False,
            padding=(0, gap, 0, 0),
        )
        for header, is_left, width in zip(self.headers, self.is_left, widths, strict=True):
            justify: Literal["left", "right"] = "left" if is_left else "right"
            made.add_column(escape(header), justify=justify, overflow="fold", width=width)
        for row in self.rows:
            made.add_row(*map(escape, row))
        yield made

    def _widths(self, room: int) -> tuple[int, list[int]]:
        """The gap between columns and their widths. The widest give way first: long texts are folded, and
        headings between words.
        """
        columns = [list(column) for column in zip(self.headers, *self.rows, strict=True)]
        widths = [max(map(cell_len, column)) for column in columns]
        least = [
            min(_NEVER_FOLDED, max(map(cell_len, [*header.split(), *texts, ""])))
            for header, *texts in columns
        ]
        gaps = len(widths) - 1
        gap = 2 if sum(least) + 2 * gaps <= room else 1
        while sum(widths) + gap * gaps > room:
            spare = [width - few for width, few in zip(widths, least, strict=True)]
            if not any(spare):
                break
            widest = max((i for i, some in enumerate(spare) if some), key=widths.__getitem__)
            widths[widest] -= 1
        return gap, widths


def table(
    title: str, columns: list[tuple[str, Callable[..., str]]], rows: Iterable[tuple[object, ...]]
) -> FittedTable:
    """A table of values; each column says how its own are shown, texts (`str`) to the left."""
    texts = [[shown(value) for (_, shown), value in zip(columns, row, strict=True)] for row in rows]
    return FittedTable(title, [name for name, _ in columns], [shown is str for _, shown in columns], texts)

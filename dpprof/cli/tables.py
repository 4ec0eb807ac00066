"""Tables in the terminal, from plain rows."""

from collections.abc import Callable, Iterable

from rich import box
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


def table(
    title: str, columns: list[tuple[str, Callable[..., str]]], rows: Iterable[tuple[object, ...]]
) -> Table:
    """A table of values; each column says how its own are shown, texts (`str`) to the left."""
    made = Table(
        title=escape(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    texts = [[shown(value) for (_, shown), value in zip(columns, row, strict=True)] for row in rows]
    for i, (name, shown) in enumerate(columns):
        # Where the terminal is narrow long texts are folded, and headings before short texts.
        needed = min(_NEVER_FOLDED, max((len(row[i]) for row in texts), default=0))
        made.add_column(name, justify="left" if shown is str else "right", overflow="fold", min_width=needed)
    for row in texts:
        made.add_row(*map(escape, row))
    return made

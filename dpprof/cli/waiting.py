"""Something on the screen while a command loads what takes seconds."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """A spinner with a few words, gone in the end; nothing where there is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_interactive:
        yield
        return
    with console.status(for_what):
        yield

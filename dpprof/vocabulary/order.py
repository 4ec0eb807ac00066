"""The order in which pages and tables name things."""

from collections.abc import Iterable


def listed_first(names: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Names as a table lists them, then those that it does not list, in order of appearance; each once."""
    found = list(dict.fromkeys(names))
    return [name for name in dict.fromkeys([*listed, *found]) if name in found]

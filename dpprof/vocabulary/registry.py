"""Tables that other packages extend by entry points (`importlib.metadata`)."""

import re
import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

T = TypeVar("T", bound=Any)  # the kind of a table's entries, which have a name
# Allowed names: they become part of folder names.
NAME = r"\w[\w.-]*"


def table(
    group: str, kind: type[T], built_in: Iterable[T], own_names: dict[str, str] | None = None
) -> dict[str, T]:
    """Return the built-in entries and those of other packages' entry points, by name.

    `own_names` gets those of the entry points themselves. An unusable entry point only causes a warning that
    names it and its package.
    """
    found = {item.name: item for item in built_in}
    for entry_point in sorted(entry_points(group=group), key=lambda e: e.name):
        try:
            item = entry_point.load()
        except Exception as error:
            _warn(entry_point, f"it cannot be imported ({type(error).__name__}: {error})")
            continue
        if not isinstance(item, kind):
            _warn(entry_point, f"its type must be {kind.__name__}, and is {type(item).__name__}")
        elif not re.fullmatch(NAME, item.name):
            _warn(entry_point, f"the name {item.name!r} must be letters, digits, '_', '-' and '.'")
        elif item.name in found:
            _warn(entry_point, f"the name {item.name} is taken")
        else:
            found[item.name] = item
            if own_names is not None:
                own_names[entry_point.name] = item.name
    return found


def load(target: str) -> Any:
    """Import `module:attribute`. Raises ImportError or AttributeError."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _warn(entry_point: EntryPoint, why: str) -> None:
    package = entry_point.dist.name if entry_point.dist is not None else "an unknown package"
    warnings.warn(f"{entry_point.group}: {entry_point.name} of {package} is left out: {why}", stacklevel=3)

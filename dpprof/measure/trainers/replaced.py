"""Sets an attribute for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, attribute: str, value: Any) -> Iterator[None]:
    """Set an attribute of an object or module, and restore it at the end."""
    missing = object()
    before = vars(owner).get(attribute, missing)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, before)

"""Combine several runs into one: the median of each figure over the runs that have it."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def median_of(runs: Sequence[T]) -> T:
    """Return the median of figures, of mappings by name, or of dataclasses field by field."""
    found: Any = None
    known: list[Any] = [run for run in runs if run is not None]
    first = known[0] if known else None
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for run in known for name in run)
        found = {name: median_of([run[name] for run in known if name in run]) for name in names}
    elif dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = [field.name for field in dataclasses.fields(first)]
        medians = {name: median_of([getattr(run, name) for run in known]) for name in fields}
        found = dataclasses.replace(first, **medians)
    elif known:
        found = statistics.median(known)
    return found  # type: ignore[no-any-return]

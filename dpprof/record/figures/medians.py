"""Combine several runs into one: the median of each figure over the runs that have it."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def median_of(runs: Sequence[T]) -> T:
    """Return the median of figures, of mappings by name, or of dataclasses field by field."""
    found: T = _median(runs)
    return found


def _median(runs: Sequence[Any]) -> Any:
    known = [run for run in runs if run is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for run in known for name in run)
        return {name: _median([run[name] for run in known if name in run]) for name in names}
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = dict.fromkeys(field.name for field in dataclasses.fields(first))
        return dataclasses.replace(
            first, **{name: _median([getattr(run, name) for run in known]) for name in names}
        )
    return statistics.median(known)

"""Things and amounts brought together by a key, in order of their first appearance."""

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")
N = TypeVar("N", int, float)


def grouped(items: Iterable[T], by: Callable[[T], K]) -> dict[K, list[T]]:
    """Group the items for which `by` gives the same key."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def summed(pairs: Iterable[tuple[K, N]]) -> dict[K, N]:
    """Sum the amounts that come with the same key."""
    sums: dict[K, N] = {}
    for key, amount in pairs:
        sums[key] = sums.get(key, 0) + amount
    return sums

"""The sentences of findings, by kind, with their values; `sentences.toml` has their words."""

import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dpprof.vocabulary.formats import fixed, joined, listed, memory, milliseconds, number, size
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import mib

_MOST_LISTED = 6


def _ratios(values: Sequence[float]) -> str:
    """Format ratios by the lowest and the highest; one close to 1 gets more decimals."""
    ends = (min(values), max(values))
    low, high = (fixed(end, 2 if abs(end - 1) >= 0.005 or end == 1 else 4) for end in ends)
    return low if low == high else f"{low} to {high}"


_WAYS: dict[str, Callable[[Any], str]] = {
    "name": short_name,
    "names": lambda trainers: joined([short_name(trainer) for trainer in trainers]),
    "and": joined,
    "several": lambda texts: listed(texts, _MOST_LISTED),
    "then": "; ".join,
    "comma": ", ".join,
    "ratios": _ratios,
    "ms": milliseconds,
    "number": number,
    "size": size,
    "memory": memory,
    "bytes": lambda num_bytes: memory(mib(num_bytes)),
}


_FILE = tomllib.loads((resources.files("dpprof.findings") / "sentences.toml").read_text(encoding="utf-8"))
# What opens a finding, by the first word of its kind.
TOPICS: dict[str, str] = _FILE["topics"]
# Topics that explain figures and recommend nothing.
EXPLAINING = ("estimated", "savings")
SENTENCES: dict[str, str] = _FILE["sentences"]


class _Writing(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list | tuple):
            value = [str(each) if isinstance(each, Said) else each for each in value]
        return _WAYS[format_spec](value) if format_spec in _WAYS else format(value, format_spec)


@dataclass(frozen=True)
class Said:
    """A sentence, or a part of one: its kind in `SENTENCES`, and its values."""

    kind: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return _Writing().vformat(SENTENCES[self.kind], (), self.values)

    def __format__(self, spec: str) -> str:
        return str(self)


def say(kind: str, **values: Any) -> str:
    """Return the words of a sentence of a kind."""
    return str(Said(kind, values))


def said(kind: str, **values: Any) -> Said:
    """Return a sentence of a kind with its values."""
    return Said(kind, values)

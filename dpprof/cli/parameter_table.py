"""Which parameters train, and what was changed for it, for the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpprof.cli.fitted_tables import FittedTable
    from dpprof.record.record import Record

_ANSWERS = ("train", "per-sample gradients", "moved")
_WORDS = {None: "", True: "yes", False: "no"}


def parameter_parts(record: "Record") -> "Iterator[FittedTable | str]":
    """A table of a record's parameters by kind, and the sentences on what was changed for training."""
    from rich.markup import escape

    from dpprof.cli.fitted_tables import table, whole

    if record.parameters:
        yield table(
            "Parameters",
            [("kind", str), ("tensors", whole), ("numbers", whole), *((name, str) for name in _ANSWERS)],
            [
                (
                    group.kind,
                    group.tensors,
                    group.numbers,
                    _WORDS[group.trains],
                    _WORDS[group.per_sample],
                    _WORDS[group.moved],
                )
                for group in record.parameters
            ],
        )
    for text in record.changed:
        yield f"[b]changed for training[/]: {escape(text)}"

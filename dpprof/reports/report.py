"""A report: something written into a folder from what was measured, and the version of its layout.

A folder keeps the versions of what was written into it, so that a folder that an earlier dpprof left gets
new pages.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from dpprof.errors import DpprofError
from dpprof.json_files import read_json, typed
from dpprof.record.files import write_text

S = TypeVar("S")


@dataclass(frozen=True)
class Report(Generic[S]):
    """What is written of a subject: a run's result, or a sweep's comparison.

    `file` is its name in the folder, the first one if it has several, as `record/folder.py` names it.
    `write` returns the files that it wrote: none where the subject has nothing to show. Raise `version` with
    every change of what a reader sees.
    """

    file: str
    version: int
    write: Callable[[S], list[Path]]


@dataclass(frozen=True)
class _Written:
    """What a folder knows of a report: the version, and the files by their paths in the folder."""

    version: int
    files: list[str]


def write_all(reports: Sequence[Report[S]], subject: S, kept_in: Path) -> list[Path]:
    """Write every report of a subject, and note the versions in the file `kept_in`. Returns the files."""
    return _write(reports, subject, kept_in, {})


def write_missing(reports: Sequence[Report[S]], subject: S, kept_in: Path) -> list[Path]:
    """Write the reports that a folder lacks or has in another version. Returns the files of all."""
    return _write(reports, subject, kept_in, _read(kept_in))


def _write(reports: Sequence[Report[S]], subject: S, kept_in: Path, known: dict[str, _Written]) -> list[Path]:
    folder = kept_in.parent
    found = {}
    for report in reports:
        written = known.get(report.file)
        if written is None or not _is_current(written, report, folder):
            files = [path.relative_to(folder).as_posix() for path in report.write(subject)]
            written = _Written(report.version, files)
        found[report.file] = written
    if found != known:
        write_text(kept_in, json.dumps({name: asdict(written) for name, written in found.items()}, indent=1))
    return [folder / name for written in found.values() for name in written.files]


def _is_current(written: _Written, report: Report[S], folder: Path) -> bool:
    return written.version == report.version and all((folder / name).exists() for name in written.files)


def _read(kept_in: Path) -> dict[str, _Written]:
    """What was written into the folder; nothing where the file is missing or damaged."""
    try:
        return typed(dict[str, _Written], read_json(kept_in))
    except DpprofError:
        return {}

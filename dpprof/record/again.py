"""Repeat an experiment in a hidden folder beside its run folder; the old results stay until the end."""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpprof.errors import DpprofError
from dpprof.record.files import remove
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link

_AGAIN, _BEFORE = ".again", ".before"


def beside(folder: RunFolder) -> RunFolder:
    """Return the hidden folder in which a folder's experiment is repeated."""
    return RunFolder(_hidden(folder, _AGAIN))


def replace(folder: RunFolder) -> None:
    """Replace the folder with its repetition; its MLflow run is replaced at the next upload."""
    before = _hidden(folder, _BEFORE)
    remove(before)
    mark_unlogged(folder, beside(folder))
    folder.path.rename(before)
    beside(folder).path.rename(folder.path)
    remove(before)


def discard(folder: RunFolder) -> None:
    """Delete the repetition."""
    remove(beside(folder).path)


def left_over(home: SweepFolder) -> Iterator[RunFolder]:
    """Yield folders with a repetition left by a killed dpprof; finishes replacements that had begun."""
    for path in sorted(home.path.glob(f".*{_BEFORE}")):
        folder = _visible(path, _BEFORE)
        if not folder.path.exists():
            again = beside(folder).path
            (again if again.exists() else path).rename(folder.path)
        remove(path)
    for path in sorted(home.path.glob(f".*{_AGAIN}")):
        yield _visible(path, _AGAIN)


def mark_unlogged(folder: RunFolder, into: RunFolder) -> None:
    """Note in `into` that the folder's MLflow run is to be replaced."""
    try:
        link = Link.read(folder.mlflow)
    except DpprofError:
        with suppress(OSError):  # copied unread: the damage is reported when the folder is logged
            shutil.copyfile(folder.mlflow, into.mlflow)
        return
    if link is not None:
        dataclasses.replace(link, complete=False).write(into.mlflow)


def _hidden(folder: RunFolder, suffix: str) -> Path:
    return folder.path.with_name(f".{folder.name}{suffix}")


def _visible(path: Path, suffix: str) -> RunFolder:
    return RunFolder(path.with_name(path.name.removeprefix(".").removesuffix(suffix)))

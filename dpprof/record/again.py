"""The place beside a run folder where its experiment is done again, so that nothing is lost meanwhile."""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpprof.errors import DpprofError
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link

_AGAIN, _BEFORE = ".again", ".before"


def beside(folder: RunFolder) -> RunFolder:
    """Where the experiment of a folder is done again."""
    return RunFolder(_hidden(folder, _AGAIN))


def replace(folder: RunFolder) -> None:
    """Put what was done again in the folder's place; its run in MLflow is replaced when it is logged."""
    before = _hidden(folder, _BEFORE)
    _remove(before)
    mark_unlogged(folder, beside(folder))
    folder.path.rename(before)
    beside(folder).path.rename(folder.path)
    _remove(before)


def discard(folder: RunFolder) -> None:
    """Delete what was done again."""
    _remove(beside(folder).path)


def left_over(home: SweepFolder) -> Iterator[RunFolder]:
    """The folders whose experiments were being done again when dpprof was killed.

    A replacing that had begun is brought to its end.
    """
    for path in sorted(home.path.glob(f".*{_BEFORE}")):
        folder = _visible(path, _BEFORE)
        if not folder.path.exists():
            again = beside(folder).path
            (again if again.exists() else path).rename(folder.path)
        _remove(path)
    for path in sorted(home.path.glob(f".*{_AGAIN}")):
        yield _visible(path, _AGAIN)


def mark_unlogged(folder: RunFolder, into: RunFolder) -> None:
    """Note in `into` that the run in MLflow which holds the folder is to be replaced."""
    try:
        link = Link.read(folder.mlflow)
    except DpprofError:
        with suppress(OSError):  # copied as it is: whoever logs the folder names it
            shutil.copyfile(folder.mlflow, into.mlflow)
        return
    if link is not None:
        dataclasses.replace(link, complete=False).write(into.mlflow)


def _hidden(folder: RunFolder, suffix: str) -> Path:
    return folder.path.with_name(f".{folder.name}{suffix}")


def _visible(path: Path, suffix: str) -> RunFolder:
    return RunFolder(path.with_name(path.name.removeprefix(".").removesuffix(suffix)))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

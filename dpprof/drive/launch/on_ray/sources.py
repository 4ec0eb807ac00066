"""The Python files of a workload that is not installed, so that they can be sent to other machines."""

import io
import os
import tarfile
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from dpprof.errors import ConfigError
from dpprof.vocabulary.workloads import WORKLOADS, listed

_MOST_FILES, _MOST_BYTES, _MOST_FOLDERS = 5_000, 64 * 2**20, 20_000


def sources_of(workload: str) -> bytes | None:
    """The folder that the workload's module lies in, with all Python files there and below, as a tar file.

    Only for a module that is found in the working directory or on PYTHONPATH, where a measuring process of
    this machine looks; None for one that is installed, or unknown here. Raises ConfigError if there is too
    much.
    """
    if ":" not in workload or listed(workload) in WORKLOADS:
        return None
    root = _root_of(workload.partition(":")[0].partition(".")[0])
    return None if root is None else _packed(root)


def _root_of(module: str) -> Path | None:
    places = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return next((Path(place) for place in places if PathFinder.find_spec(module, [place])), None)


def _packed(root: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=True) as archive:
        for num_files, path in enumerate(_python_files(root)):
            if num_files == _MOST_FILES or stream.tell() > _MOST_BYTES:
                raise _too_much(root)
            archive.add(path, path.relative_to(root))
    return stream.getvalue()


def _python_files(root: Path) -> Iterator[Path]:
    """Those that can be imported: in folders whose names can be written in an import."""
    for num_folders, (place, folders, names) in enumerate(os.walk(root)):
        if num_folders > _MOST_FOLDERS:
            raise _too_much(root)
        folders[:] = [name for name in folders if _may_hold_modules(Path(place, name))]
        yield from (path for name in names if (path := Path(place, name)).suffix == ".py" and path.is_file())


def _may_hold_modules(folder: Path) -> bool:
    is_importable = folder.name.isidentifier() and folder.name != "__pycache__"
    return is_importable and not (folder / "pyvenv.cfg").exists()


def _too_much(root: Path) -> ConfigError:
    return ConfigError(
        f"workload: the Python files in {root} and below are to be sent to the nodes, and are too many: put "
        "the workload's module into a folder with little else, or install it on the nodes"
    )

"""Run folders as bytes, to be sent from one machine to another."""

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path


def pack(folder: Path, parts: Iterable[str] = (".",)) -> bytes:
    """The files of a folder, or of some folders within it.

    Links, pipes, sockets and what cannot be read are left out: they are not uploaded either.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for path in (path for part in parts for path in _below(folder / part)):
            try:
                archive.add(path, path.relative_to(folder), recursive=False)
            except OSError:
                continue
    return stream.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Put the files into a folder, in the place of those of the same names."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder, [member for member in archive if _is_plain(member)])


def _is_plain(member: tarfile.TarInfo) -> bool:
    """Whether it is a folder or a regular file, and lies within."""
    path = Path(member.name)
    return (member.isfile() or member.isdir()) and not path.is_absolute() and ".." not in path.parts


def _below(folder: Path) -> Iterator[Path]:
    """Folders and regular files."""
    for place, folders, names in os.walk(folder):
        yield from (Path(place, name) for name in folders if not Path(place, name).is_symlink())
        yield from (Path(place, name) for name in names if stat.S_ISREG(Path(place, name).lstat().st_mode))

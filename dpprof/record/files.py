"""Files are written beside their place and then renamed, so that a reader never sees half of one."""

import gzip
import json
import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_gzipped_json(path: Path, data: object) -> None:
    """Write compressed JSON whole or not at all: as small as gzip makes it, equal data as equal bytes."""
    text = json.dumps(data, separators=(",", ":"))
    write_bytes(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))

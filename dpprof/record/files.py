"""Write files under a temporary name and rename them, so that none is seen in part; read texts leniently."""

import gzip
import json
import os
import shutil
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_text(path: Path) -> str:
    """Return a file's text; empty if it is missing, or if a workload put something else in its place."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def write_gzipped_json(path: Path, data: object) -> None:
    """Write gzipped JSON atomically; equal data give equal bytes."""
    text = json.dumps(data, separators=(",", ":"))
    write_bytes(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))

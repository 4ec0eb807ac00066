"""Write files under a temporary name and rename them, so that readers never see a partial file."""

import gzip
import json
import os
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


def write_gzipped_json(path: Path, data: object) -> None:
    """Write gzipped JSON atomically; equal data give equal bytes."""
    text = json.dumps(data, separators=(",", ":"))
    write_bytes(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))

"""Files as damage leaves them: a value of another type, a file that was cut, a newer schema."""

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OTHERS: tuple[Any, ...] = (None, True, 7, 0.5, "text", [], {"a": 1})
Keys = tuple[str | int, ...]


def read(path: Path) -> Any:
    """The JSON of a file, packed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def packed(path: Path, data: object) -> bytes:
    """The content of a file that holds the data."""
    text = json.dumps(data).encode()
    return gzip.compress(text, compresslevel=1) if path.suffix == ".gz" else text


def damaged(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file's damaged contents, each with a word on the damage; the file itself is left as it is."""
    content, data = path.read_bytes(), read(path)
    for tenth in range(10):
        yield f"cut at {tenth}0 %", content[: len(content) * tenth // 10]
    yield "nested", packed(path, "deep").replace(b'"deep"', b"[" * 100_000)
    yield "no text", b"\xff\xfe\x00"
    if "schema_version" in data:
        yield "newer schema", packed(path, data | {"schema_version": data["schema_version"] + 1})
    for keys, other in wrongly_typed(data):
        word = f"{'.'.join(map(str, keys))}={json.dumps(other)}"
        yield word, packed(path, changed(data, keys, other))


def wrongly_typed(data: Any) -> Iterator[tuple[Keys, Any]]:
    """Every place with a value of every other type."""
    for keys in places(data):
        for other in OTHERS:
            if type(other) is not type(value_at(data, keys)):
                yield keys, other


def places(data: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Where values are: every field, of lists the first."""
    yield keys
    inner = data.items() if isinstance(data, dict) else enumerate(data[:1]) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*keys, key))


def value_at(data: Any, keys: Keys) -> Any:
    """The value at a place."""
    for key in keys:
        data = data[key]
    return data


def changed(data: Any, keys: Keys, value: Any) -> Any:
    """The data with another value at a place."""
    if not keys:
        return value
    made = copy.copy(data)
    made[keys[0]] = changed(data[keys[0]], keys[1:], value)
    return made

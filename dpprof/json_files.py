"""Reads JSON that may be damaged, or not dpprof's at all: limits its size, and checks every value's type."""

import json
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpprof.errors import DpprofError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

# The most bytes that a file may have, packed and unpacked.
LARGEST = 256 * 2**20
_MOST_DIGITS = 30
_TOO_DEEP = "its lists and objects are nested too deeply"
_GZIP = 31  # zlib's window for a gzip header and checksum

_adapters: dict[object, "TypeAdapter[Any]"] = {}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Tell whatever is wrong with a file's content together with its name."""
    try:
        yield
    except RecursionError:
        raise DpprofError(f"{path} cannot be read: {_TOO_DEEP}") from None
    except DpprofError as error:
        raise DpprofError(f"{path} cannot be read: {error}") from error


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """The content of a JSON file, unpacked if its name ends in `.gz`.

    Raises DpprofError with the file's name if it cannot be read, is damaged or has more than `largest` bytes.
    """
    with naming(path):
        content = _bytes(path, largest)
        return parse(_unpacked(content, largest) if path.suffix == ".gz" else content)


def parse(text: str | bytes) -> Any:
    """JSON as plain data; NaN and infinity are numbers. Raises DpprofError."""
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise DpprofError(_TOO_DEEP) from None
    except ValueError as error:
        raise DpprofError(f"it is no valid JSON ({error})") from error


def typed(kind: type[T], data: object) -> T:
    """Plain data as a dataclass, or whatever else `kind` is.

    Every value must have the type of its field: no text for a number, no field that the class does not
    have. Raises DpprofError that names the first field which is wrong.
    """
    from pydantic import TypeAdapter, ValidationError  # here, as a measuring process has no need of it

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    try:
        # Only JSON may stand for a dataclass where types are strict.
        found: T = _adapters[kind].validate_json(json.dumps(data), strict=True, extra="forbid")
    except RecursionError:
        raise DpprofError(_TOO_DEEP) from None
    except ValidationError as error:
        raise DpprofError(_in_words(error)) from error
    return found


def _in_words(error: "ValidationError") -> str:
    """The first field that is wrong, and what is wrong with it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))[:200] or "it"
    if first["type"] == "missing":
        return f"{field} is missing"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{field} is unknown to this dpprof"
    if first["msg"].startswith("Input should"):
        return f"{field} {first['msg'].removeprefix('Input ')}"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"


def _bytes(path: Path, largest: int) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DpprofError("it is no regular file")
        _refuse_above(largest, found.st_size)
        return path.read_bytes()
    except OSError as error:
        raise DpprofError(error.strerror or str(error)) from error


def _unpacked(content: bytes, largest: int) -> bytes:
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unpacking.decompress(content, largest + 1)
    except zlib.error as error:
        raise DpprofError(f"it is no valid gzip ({error})") from error
    _refuse_above(largest, len(text))
    if not unpacking.eof:
        raise DpprofError("it ends in the middle")
    return text


def _refuse_above(largest: int, num_bytes: int) -> None:
    if num_bytes > largest:
        raise DpprofError(f"it has more than {largest // 2**20} MiB")


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)

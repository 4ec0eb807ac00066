"""Read JSON files that may be damaged or foreign: size limit, type check of every value."""

import gzip
import json
import stat
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpprof.errors import DpprofError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

# Largest file in bytes, unpacked, unless said otherwise.
LARGEST = 256 * 2**20
_MOST_DIGITS = 30
_TOO_DEEP = "its lists and objects are nested too deeply"

_adapters: dict[object, "TypeAdapter[Any]"] = {}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to errors about its content."""
    try:
        yield
    except RecursionError:
        raise DpprofError(f"{path} cannot be read: {_TOO_DEEP}") from None
    except DpprofError as error:
        raise DpprofError(f"{path} cannot be read: {error}") from error


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Read a JSON file, gzipped or not. Raises DpprofError with its name if it cannot be used."""
    with naming(path):
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise DpprofError("it is no regular file")
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
                content = file.read(largest + 1)
            if len(content) > largest:
                raise DpprofError(f"it has more than {largest // 2**20} MiB")
            return parse(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DpprofError(f"it is no valid gzip ({error})") from error
        except OSError as error:
            raise DpprofError(error.strerror or str(error)) from error


def read_if_there(path: Path, make: Callable[[Any], T]) -> T | None:
    """Return what `make` makes of a JSON file; None if there is none. Raises DpprofError with its name."""
    if not path.exists():
        return None
    data = read_json(path)
    with naming(path):
        return make(data)


def parse(text: str | bytes) -> Any:
    """Parse JSON; NaN and infinity are numbers. Raises DpprofError."""
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise DpprofError(_TOO_DEEP) from None
    except ValueError as error:
        raise DpprofError(f"it is no valid JSON ({error})") from error


def typed(kind: type[T], data: object, obsolete: Collection[str] = ()) -> T:
    """Convert plain data to a type, strictly. Raises DpprofError naming the first bad or unknown field.

    Fields that are `obsolete` are allowed and ignored.
    """
    from pydantic import TypeAdapter, ValidationError  # here, as measuring processes do not need it

    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name not in obsolete}
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    try:
        # In strict mode pydantic builds dataclasses only from JSON.
        found: T = _adapters[kind].validate_json(json.dumps(data), strict=True, extra="forbid")
    except RecursionError:
        raise DpprofError(_TOO_DEEP) from None
    except ValidationError as error:
        raise DpprofError(_in_words(error)) from error
    return found


def _in_words(error: "ValidationError") -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))[:200] or "it"
    if first["type"] == "missing":
        return f"{field} is missing"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{field} is unknown to this dpprof"
    if first["msg"].startswith("Input should"):
        return f"{field} {first['msg'].removeprefix('Input ')}"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)

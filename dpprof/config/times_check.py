"""Checks a table of times as plain data, whole, before anything rests on it. Errors name the field."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dpprof.errors import DpprofError, shown
from dpprof.vocabulary.operator_kinds import KINDS, num_sizes
from dpprof.vocabulary.parallel import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER

_DEVICES = ("cpu", "cuda")
_COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)


def check_fields(kind: type, data: object, where: str) -> Mapping[str, Any]:
    """Return an object of a dataclass's fields. Raises DpprofError for one that is missing or unknown."""
    if not isinstance(data, dict):
        raise _wrong(where, data, "an object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    prefix = f"{where}." if where else ""
    for name in data:
        if name not in fields:
            raise DpprofError(f"{prefix}{shown(name)} is not known")
    for name, field in fields.items():
        is_optional = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        if name not in data and not is_optional:
            raise DpprofError(f"{prefix}{name} is missing")
    return data


def check_head(data: Mapping[str, Any], types: Collection[str]) -> None:
    """Check what a table says of its device. `types` are the known types of numbers. Raises DpprofError."""
    _text(data["gpu"], "gpu")
    _among(data["device"], "device", _DEVICES)
    rates = data["tflops"]
    if not isinstance(rates, dict) or "float32" not in rates:
        raise _wrong("tflops", rates, "an object with float32")
    for name, rate in rates.items():
        _among(name, "a name in tflops", types)
        _number(rate, f"tflops.{name}", above=0)
    _number(data["gb_per_s"], "gb_per_s", above=0)
    for name in ("launch_us", "issue_us"):
        _number(data.get(name, 0.0), name, least=0)
    _whole(data.get("ranks", 1), "ranks", least=1)
    if data["operators"] == []:
        raise _wrong("operators", [], "a list of times")
    for name in ("processors", "threads", "rounds"):
        _whole(data.get(name, 0), name, least=0)
    others = data.get("others_pct")
    if others is not None:
        _number(others, "others_pct")
    versions = data.get("versions", {})
    if not isinstance(versions, dict):
        raise _wrong("versions", versions, "an object")
    for name, version in versions.items():
        _text(version, f"versions.{name}")


def check_operators(data: Mapping[str, Any], where: str, types: Collection[str]) -> None:
    """Check the times of one kind of operator. Raises DpprofError."""
    _among(data["kind"], f"{where}.kind", KINDS)
    _among(data["dtype"], f"{where}.dtype", types)
    _text(data["source"], f"{where}.source")
    _number(data.get("spread", 0.0), f"{where}.spread", least=0)
    columns = num_sizes(data["kind"]) + 3
    for place, point in _points(data["points"], f"{where}.points", columns):
        for number, value in enumerate(point[:-1]):
            _number(value, f"{place}[{number}]", least=0)
        _number(point[-1], f"{place}[{columns - 1}]", above=0)
        if not point[-3] and not point[-2]:
            raise _wrong(place, point, "a point that moves bytes or computes")


def check_collectives(data: Mapping[str, Any], where: str) -> None:
    """Check the times of one collective, which are in the order of sizes. Raises DpprofError."""
    _among(data["name"], f"{where}.name", _COLLECTIVES)
    _whole(data["ranks"], f"{where}.ranks", least=2)
    _text(data["source"], f"{where}.source")
    before = 0.0
    for place, (size, us) in _points(data["points"], f"{where}.points", 2):
        _number(size, f"{place}[0]", above=before)
        _number(us, f"{place}[1]", above=0)
        before = size


def items(data: object, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and value of each item of a list. Raises DpprofError if it is none."""
    if not isinstance(data, list):
        raise _wrong(where, data, "a list")
    yield from ((f"{where}[{number}]", value) for number, value in enumerate(data))


def _points(data: object, where: str, columns: int) -> Iterator[tuple[str, list[Any]]]:
    if data == []:
        raise _wrong(where, data, "a list of points")
    for place, point in items(data, where):
        if not isinstance(point, list) or len(point) != columns:
            raise _wrong(place, point, f"a list of {columns} numbers")
        yield place, point


def _number(value: object, where: str, *, least: float = -math.inf, above: float = -math.inf) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(float(value)):  # type: ignore[arg-type]
        raise _wrong(where, value, "a finite number")
    if value < least or value <= above:  # type: ignore[operator]
        limit = f"of at least {least:g}" if least > -math.inf else f"above {above:g}"
        raise _wrong(where, value, f"a number {limit}")


def _whole(value: object, where: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(where, value, f"a whole number of at least {least}")


def _text(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise _wrong(where, value, "a text")


def _among(value: object, where: str, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise _wrong(where, value, f"one of {', '.join(sorted(known))}")


def _wrong(where: str, value: object, wanted: str) -> DpprofError:
    return DpprofError(f"{where or 'it'} is {shown(value)}, and must be {wanted}")

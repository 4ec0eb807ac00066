"""Declare, parse and check settings, once for the command line and JSON files.

A setting is a field of a frozen dataclass, made with `setting(default, help, ...)`. Its type is its
default's: str, int, float or bool.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from dpprof.errors import refuse

T = TypeVar("T")
OptionValue = str | int | float | bool
_BOOLEANS = {"true": True, "false": False}
# Limit of sizes and counts; a setting with larger values has its own `below`.
LARGEST = 10**9
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def setting(
    default: T,
    help: str,
    *,
    choices: Iterable[str] | Mapping[str, str] = (),
    unlisted: Collection[str] = (),
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> T:
    """Declare a dataclass field with its `--help` text and the rules for its value.

    `choices` are the allowed texts; a mapping gives the canonical text for each. Those `unlisted` are allowed
    but not named in help or messages. `minimum` itself is allowed, `above` and `below` are not.
    """
    if not isinstance(choices, Mapping):
        choices = {choice: choice for choice in choices}
    rules: dict[str, Any] = {"help": help, "choices": choices, "unlisted": unlisted}
    rules |= {"minimum": minimum, "above": above, "below": below}
    return dataclasses.field(default=default, metadata=rules)


def fields(cls: type) -> dict[str, "dataclasses.Field[Any]"]:
    """Return the settings of a configuration class by name, in order of declaration."""
    return {field.name: field for field in dataclasses.fields(cls) if "help" in field.metadata}


def choices_of(field: "dataclasses.Field[Any]") -> list[str]:
    """Return the allowed texts of a setting that has them; the first other name of one comes before it."""
    choices, unlisted = field.metadata["choices"], field.metadata["unlisted"]
    others = {full: name for name, full in reversed(choices.items()) if name not in (full, *unlisted)}
    listed = [name for name, full in choices.items() if name == full and name not in unlisted]
    return [f"{others[name]} ({name})" if name in others else name for name in listed]


def allowed(field: "dataclasses.Field[Any]") -> str:
    """Describe the allowed values of a setting for help texts and error messages."""
    rules = field.metadata
    if rules["choices"]:
        return ", ".join(choices_of(field))
    words = _KINDS[type(field.default)]
    if rules["minimum"] is not None:
        words += f" of at least {rules['minimum']:g}"
    if rules["above"] is not None:
        words += f" above {rules['above']:g}"
    if rules["below"] is not None:
        words += f" and below {rules['below']:g}"
    return words


def parse(field: "dataclasses.Field[Any]", value: object) -> Any:
    """Convert text or JSON to the setting's type. Raises ConfigError naming option, value and rules."""
    kind: Callable[[str], Any] = type(field.default)
    error = refuse(field.name, value, allowed(field))
    is_scalar = isinstance(value, (str, int, float))
    if not is_scalar or (not isinstance(value, str) and isinstance(value, bool) != (kind is bool)):
        raise error
    text = str(value).strip()
    try:
        parsed = _BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise error from None
    if field.metadata["choices"]:
        if parsed not in field.metadata["choices"]:
            raise error
        return field.metadata["choices"][parsed]
    if kind is float and not math.isfinite(parsed):
        raise error
    if kind is int and field.metadata["below"] is None and parsed > LARGEST:
        raise refuse(field.name, value, f"a whole number up to {LARGEST:,}")
    minimum, above, below = (field.metadata[rule] for rule in ("minimum", "above", "below"))
    is_low = (minimum is not None and parsed < minimum) or (above is not None and parsed <= above)
    if is_low or (below is not None and parsed >= below):
        raise error
    return parsed


def take(cls: type[T], values: Mapping[str, object]) -> tuple[T, dict[str, object]]:
    """Build a configuration from raw values and defaults; return the other values too. Raises ConfigError."""
    known, mine, others = fields(cls), {}, {}
    for name, value in values.items():
        if name in known:
            mine[name] = parse(known[name], value)
        else:
            others[name] = value
    return cls(**mine), others


def assignments(name: str, text: str) -> dict[str, Any]:
    """Parse `name=value,name=value`, values as JSON if possible. Raises ConfigError naming the option."""
    found: dict[str, Any] = {}
    for part in filter(None, re.split(r",(?![^\[]*\])", text)):  # no comma within brackets
        key, separator, value = (each.strip() for each in part.partition("="))
        if not separator or not key.isidentifier() or not value:
            raise refuse(name, text, "name=value,name=value")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = {"True": True, "False": False, "None": None}.get(value, value)
    return found

"""How a setting is declared, parsed and checked: once, for the command line, MLproject and JSON files.

A setting is a field of a frozen dataclass, made with `setting(default, help, ...)`. Its type is the
type of its default: str, int, float or bool.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from dpprof.errors import ConfigError

T = TypeVar("T")
OptionValue = str | int | float | bool
_BOOLEANS = {"true": True, "false": False}
# Sizes and counts are not larger; a setting that may be says so by its own `below`.
LARGEST = 10**9
_LONGEST_SHOWN = 200
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
    """Declare a dataclass field with the text shown by `--help` and the rules its value must meet.

    `choices` are the allowed texts; a mapping gives each allowed text the canonical one it stands for.
    Those `unlisted` are allowed, and no help or message names them.
    `minimum` is allowed itself, `above` and `below` are not.
    """
    if not isinstance(choices, Mapping):
        choices = {choice: choice for choice in choices}
    rules: dict[str, Any] = {"help": help, "choices": choices, "unlisted": unlisted}
    rules |= {"minimum": minimum, "above": above, "below": below}
    return dataclasses.field(default=default, metadata=rules)


def fields(cls: type) -> dict[str, "dataclasses.Field[Any]"]:
    """The settings of a configuration class by name, in the order they were declared."""
    return {field.name: field for field in dataclasses.fields(cls) if "help" in field.metadata}


def allowed(field: "dataclasses.Field[Any]") -> str:
    """What may be given for a setting, as words for help texts and error messages."""
    rules = field.metadata
    if rules["choices"]:
        return ", ".join(name for name in rules["choices"] if name not in rules["unlisted"])
    words = _KINDS[type(field.default)]
    if rules["minimum"] is not None:
        words += f" of at least {rules['minimum']:g}"
    if rules["above"] is not None:
        words += f" above {rules['above']:g}"
    if rules["below"] is not None:
        words += f" and below {rules['below']:g}"
    return words


def refuse(name: str, value: object, allowed_words: str) -> ConfigError:
    """The error for a setting's bad value: names the option, the value and what is allowed."""
    return ConfigError(f"{name}: got {shown(value)}, allowed: {allowed_words}")


def shown(value: object) -> str:
    """A bad value as a message shows it: quoted, and cut if it is long."""
    return repr(shortened(str(value))) if value != "" else "an empty text"


def shortened(text: str) -> str:
    """A text that somebody else chose, cut if it is long."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def parse(field: "dataclasses.Field[Any]", value: object) -> Any:
    """Turn text (or a JSON value) into the setting's type and check its rules.

    Raises ConfigError, which names the option, the value and what is allowed.
    """
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
    if field.metadata["minimum"] is not None and parsed < field.metadata["minimum"]:
        raise error
    if field.metadata["above"] is not None and parsed <= field.metadata["above"]:
        raise error
    if field.metadata["below"] is not None and parsed >= field.metadata["below"]:
        raise error
    return parsed


def parse_all(cls: type[T], values: Mapping[str, object]) -> T:
    """Build a configuration from raw values, defaults where none is given. Raises ConfigError."""
    known = fields(cls)
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown option {shown(name)}, allowed: {', '.join(known)}")
    return cls(**{name: parse(known[name], value) for name, value in values.items()})


def options_as(kind: type[T], values: Mapping[str, OptionValue]) -> T:
    """The dataclass of somebody's own options, from the values of these and of others."""
    return parse_all(kind, {name: values[name] for name in fields(kind) if name in values})


def assignments(name: str, text: str) -> dict[str, Any]:
    """The values of `name=value,name=value`, each as JSON if it is that, else as text.

    Raises ConfigError, which names the option.
    """
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

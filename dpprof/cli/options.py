"""Command-line options: those derived from the configuration classes, and the file of `--output`."""

import errno
import os
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Any, TypeVar

import click

from dpprof.cli.help import GroupedOption
from dpprof.cli.streams import put
from dpprof.config.commands import COMMANDS
from dpprof.config.sweep import AXES
from dpprof.errors import ConfigError
from dpprof.record.files import write_bytes
from dpprof.settings import fields, refuse

F = TypeVar("F", bound=Callable[..., Any])
# Settings that are lists, and what stands for other texts.
_LISTS = ("passes", "counter_metrics")
_METAVARS = {
    "config": "FILE",
    "runs_dir": "FOLDER",
    "sweep_name": "NAME",
    "workload": "MODULE:FACTORY",
    "timeout_s": "SECONDS",
    "device_memory_gib": "GIB",
}
_LONGEST_CHOICES = 20
STANDARD_OUTPUT = "-"


def options_of(command: str) -> Callable[[F], F]:
    """Give a command one option per setting that it takes: `--batch-size`, also spelled `--batch_size`.

    Values arrive as text; the configuration parses and checks them, so that the command line, MLproject and
    JSON files share one set of rules and messages. Options that were not given do not arrive. Those that a
    trainer, a workload or a launcher has of its own come last, under its name.
    """

    def decorate(function: F) -> F:
        takes = COMMANDS[command]
        declared = [(field, title) for title, found in takes.by_title.items() for field in found]
        declared += [(own.field, f"Only with {', '.join(own.takers)}") for own in takes.own_options]
        for field, heading in reversed(declared):
            dashed = "--" + field.name.replace("_", "-")
            names = dict.fromkeys([dashed, "--" + field.name])
            function = click.option(
                *names,
                field.name,
                cls=GroupedOption,
                heading=heading,
                metavar=_metavar(field),
                help=_help(field),
            )(function)
        return function

    return decorate


def _metavar(field: "Field[Any]") -> str:
    """What stands for the value: the choices where they are few and short."""
    choices = "|".join(_choices(field))
    if choices and len(choices) <= _LONGEST_CHOICES:
        return choices
    if field.name in AXES or field.name in _LISTS:
        return "LIST"
    return _METAVARS.get(field.name) or {int: "N", float: "X", bool: "true|false"}.get(
        type(field.default), "NAME" if choices else "TEXT"
    )


def _help(field: "Field[Any]") -> str:
    """What a setting means, the choices that its metavar does not have, and its default."""
    words, choices = str(field.metadata["help"]), _choices(field)
    if choices and "|".join(choices) != _metavar(field):
        words += f" One of: {', '.join(choices)}."
    default = field.default
    if isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, float):
        default = f"{default:g}"
    return words if default == "" else f"{words}  [default: {default}]"


def _choices(field: "Field[Any]") -> list[str]:
    """What may be given; a short name with the long one that it stands for."""
    choices, unlisted = field.metadata["choices"], field.metadata["unlisted"]
    shorts = {full: short for short, full in choices.items() if short != full and short not in unlisted}
    listed = [name for name, full in choices.items() if name == full and name not in unlisted]
    return [f"{shorts[name]} ({name})" if name in shorts else name for name in listed]


def given(values: dict[str, str | None]) -> dict[str, object]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def split(values: dict[str, object], cls: type) -> tuple[dict[str, object], dict[str, object]]:
    """Values of the class's settings, and the others."""
    own = fields(cls)
    return {k: v for k, v in values.items() if k in own}, {k: v for k, v in values.items() if k not in own}


def output_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """The option `--output`: a file, or `-` for standard output."""
    return click.option(
        "--output",
        default=default,
        show_default=default is not None,
        metavar="FILE",
        callback=_checked_output,
        help=f"{help} - is standard output.",
    )


def _checked_output(context: click.Context, parameter: click.Parameter, output: str | None) -> str | None:
    """Refuse what cannot be a file before anything is read for it. Raises ConfigError."""
    if output is not None and output != STANDARD_OUTPUT:
        if not output:
            raise refuse("output", output, "a file, or - for standard output")
        if Path(output).is_dir():
            raise _unwritable(output, os.strerror(errno.EISDIR))
        if not Path(output).parent.is_dir():
            raise _unwritable(output, os.strerror(errno.ENOENT))
    return output


def _unwritable(output: str, reason: str) -> ConfigError:
    return refuse("output", output, f"a file that can be written ({reason})")


def write_output(output: str, content: str | bytes) -> None:
    """Write what `--output` names. A file is replaced as a whole, also one that a link leads to; a device or
    a pipe is written. Raises ConfigError where it cannot be written.
    """
    if output == STANDARD_OUTPUT:
        put(content)
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_replaced(Path(output)):
            write_bytes(Path(output).resolve(), data)
        else:
            Path(output).write_bytes(data)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _unwritable(output, getattr(error, "strerror", None) or str(error)) from None


def _is_replaced(path: Path) -> bool:
    """Whether it is a regular file, or nothing yet, outside of where devices and open files have names."""
    if path.parent.resolve().parts[1:2] in (("dev",), ("proc",)):
        return False
    return path.is_file() or not path.exists()

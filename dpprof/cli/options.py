"""Command-line options: those derived from the configuration classes, and the file of `--output`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dpprof.config.commands import COMMANDS
from dpprof.config.settings import allowed, fields
from dpprof.errors import ConfigError
from dpprof.record.folder import write_bytes

F = TypeVar("F", bound=Callable[..., Any])


def options_of(command: str) -> Callable[[F], F]:
    """Give a command one option per setting that it takes: `--batch-size`, also spelled `--batch_size`.

    Values arrive as text; the configuration parses and checks them, so that the command line, MLproject and
    JSON files share one set of rules and messages. Options that were not given do not arrive. Those that a
    trainer, a workload or a launcher has of its own come last, with its name.
    """

    def decorate(function: F) -> F:
        takes = COMMANDS[command]
        declared = [(field, "") for field in takes.settings]
        declared += [(own.field, f" ({', '.join(own.takers)})") for own in takes.own_options]
        for field, whose in reversed(declared):
            dashed = "--" + field.name.replace("_", "-")
            names = dict.fromkeys([dashed, "--" + field.name])
            words = field.metadata["help"]
            if field.metadata["choices"]:
                words += f" One of: {allowed(field)}."
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            function = click.option(
                *names,
                field.name,
                metavar=type(field.default).__name__.upper().replace("STR", "TEXT"),
                help=f"{words}{whose}  [default: {default or 'none'}]",
            )(function)
        return function

    return decorate


def given(values: dict[str, str | None]) -> dict[str, object]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def split(values: dict[str, object], cls: type) -> tuple[dict[str, object], dict[str, object]]:
    """Values of the class's settings, and the others."""
    own = fields(cls)
    return {k: v for k, v in values.items() if k in own}, {k: v for k, v in values.items() if k not in own}


def write_output(output: str, content: str | bytes) -> None:
    """Write what `--output` names. Raises ConfigError where that is no file that can be written."""
    try:
        write_bytes(Path(output), content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(
            f"output: got {output!r}, allowed: a file that can be written ({error.strerror})"
        ) from None

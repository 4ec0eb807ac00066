"""Command-line options derived from the configuration classes, and `--output`."""

import errno
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any, TypeVar

import click

from dpprof.cli.streams import put
from dpprof.config.entry_points import AXES
from dpprof.config.options import COMMANDS, FIRST
from dpprof.errors import ConfigError, refuse
from dpprof.record.files import write_bytes
from dpprof.vocabulary.settings import choices_of

F = TypeVar("F", bound=Callable[..., Any])
# Settings that are lists, and metavars of others.
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
_LONGEST_OPTION = 26
_HELP_ALL = "--help-all"
_FROM_MLPROJECT = "--from-mlproject"
# Options that a command had in earlier versions, with what takes their place.
_GONE = {
    ("plan", "--efficiency"): "a plan takes predicted times for --target, and `dpprof calibrate` measures "
    "those of a device without a table"
}
# Other spellings, where a command has no setting of that name.
_ALSO = {"trainers": ("--trainer",)}
# Settings from which on `--help` lists the first ones alone.
_MANY = 20


class GroupedOption(click.Option):
    """An option with its heading in the help; without `is_first` it is left to `--help-all`."""

    heading = "Help"
    is_first = True

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the spelling with dashes and the help."""
        return f"{self.opts[0]} {self.metavar}", self.help or ""


class GroupedOptions(click.Command):
    """A command that lists its options under headings: of many the first ones, and all by `--help-all`.

    MLproject's commands begin with `--from-mlproject`: an empty value then means that an option was not
    given, and every option must be one of the command's own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave out options of MLproject without a value."""
        if args[:1] == [_FROM_MLPROJECT]:
            ctx.ignore_unknown_options = False
            blank = {at for at, word in enumerate(args) if not word}
            left_out = {0} | blank | {at - 1 for at in blank}
            args = [word for at, word in enumerate(args) if at not in left_out]
        for name in (word.partition("=")[0].replace("_", "-") for word in args):
            if (instead := _GONE.get((self.name or "", name))) is not None:
                raise click.UsageError(f"{name} is gone: {instead}.", ctx)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with `--help-all` where `--help` leaves some out."""
        found = super().get_params(ctx)
        if any(not getattr(option, "is_first", True) for option in found):
            found.append(
                click.Option(
                    [_HELP_ALL],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help=f"Show all {sum(isinstance(o, GroupedOption) for o in found)} options and exit.",
                )
            )
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each heading, in order of first appearance."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not (getattr(parameter, "is_first", True) or ctx.meta.get(_HELP_ALL)):
                continue
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                groups.setdefault(getattr(parameter, "heading", GroupedOption.heading), []).append(record)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=_LONGEST_OPTION)


def _show_all(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        context.meta[_HELP_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def options_of(command: str) -> list[click.Parameter]:
    """Return an option for each setting of a command: `--batch-size`, also spelled `--batch_size`.

    Values stay text and are parsed by the configuration, so that the command line and JSON files share rules
    and messages. Options not given are None. Own options of trainers, workloads and launchers come last,
    under their names.
    """
    takes = COMMANDS[command]
    declared = [(field, title) for title, found in takes.by_title.items() for field in found]
    declared += [(own.field, f"Only with {', '.join(own.takers)}") for own in takes.own_options]
    is_short = len(takes.settings) < _MANY
    alone = "trainer" not in {field.name for field, _ in declared}
    return [
        _option(field, title, is_short or field.name in FIRST, _ALSO.get(field.name, ()) if alone else ())
        for field, title in declared
    ]


def _option(field: "Field[Any]", heading: str, is_first: bool, also: Sequence[str]) -> click.Parameter:
    names = dict.fromkeys(["--" + field.name.replace("_", "-"), "--" + field.name, *also])
    option = GroupedOption([*names, field.name], metavar=_metavar(field), help=_help(field))
    option.heading, option.is_first = heading, is_first
    return option


def _metavar(field: "Field[Any]") -> str:
    choices = "|".join(choices_of(field))
    if choices and len(choices) <= _LONGEST_CHOICES:
        return choices
    if field.name in AXES or field.name in _LISTS:
        return "LIST"
    return _METAVARS.get(field.name) or {int: "N", float: "X", bool: "true|false"}.get(
        type(field.default), "NAME" if choices else "TEXT"
    )


def _help(field: "Field[Any]") -> str:
    words, choices = str(field.metadata["help"]), choices_of(field)
    if choices and "|".join(choices) != _metavar(field):
        words += f" One of: {', '.join(choices)}."
    default = field.default
    if isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, float):
        default = f"{default:g}"
    return words if default == "" else f"{words}  [default: {default}]"


def as_number(text: str) -> float:
    """Convert an option's text to a number; NaN if it is none, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def output_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option `--output`: a file, or `-` for standard output."""
    return click.option(
        "--output",
        default=default,
        show_default=default is not None,
        metavar="FILE",
        callback=_checked_output,
        help=f"{help} - is standard output.",
    )


def _checked_output(context: click.Context, parameter: click.Parameter, output: str | None) -> str | None:
    """Refuse a bad output path before any work is done. Raises ConfigError."""
    if output == "":
        raise refuse("output", output, "a file, or - for standard output")
    if output is not None and output != STANDARD_OUTPUT:
        path = Path(output)
        if path.is_dir() or not path.parent.is_dir():
            raise _unwritable(output, os.strerror(errno.EISDIR if path.is_dir() else errno.ENOENT))
    return output


def _unwritable(output: str, reason: str) -> ConfigError:
    return refuse("output", output, f"a file that can be written ({reason})")


def write_output(output: str, content: str | bytes) -> None:
    """Write to `--output`, replacing regular files atomically. Raises ConfigError if it cannot.

    /dev/stdout may be a regular file, which others write, too.
    """
    if output == STANDARD_OUTPUT:
        put(content)
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        path = Path(output)
        is_device = path.parent.resolve().parts[1:2] in (("dev",), ("proc",))
        if not is_device and (path.is_file() or not path.exists()):
            write_bytes(path.resolve(), data)
        else:
            path.write_bytes(data)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _unwritable(output, getattr(error, "strerror", None) or str(error)) from None

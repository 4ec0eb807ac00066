"""`--help`: commands by what they are for, options by what they set, all within 80 columns."""

import re

import click
import pytest
from click.testing import CliRunner
from conftest import Run, fine
from example_runs import known

from dpprof.cli.main import COMMANDS, cli
from dpprof.config.options import COMMANDS as TAKES
from dpprof.config.options import FIRST

CONTEXT = click.Context(cli)
TOLD = {name: told for commands in COMMANDS.values() for name, told in commands.items()}


def command_of(name: str) -> click.Command:
    return known(cli.get_command(CONTEXT, name))


def helped(*arguments: str, is_whole: bool = True) -> str:
    options = command_of(arguments[0]).params if arguments else []
    folds = is_whole and any(not getattr(option, "is_first", True) for option in options)
    ended = CliRunner().invoke(cli, [*arguments, "--help-all" if folds else "--help"], terminal_width=80)
    assert ended.exit_code == 0
    return ended.output


def sections(text: str) -> dict[str, str]:
    """The text under each heading."""
    return dict(re.findall(r"^(\S.*):\n((?:  .*\n|\n)+)", text, flags=re.MULTILINE))


def listed(text: str) -> list[str]:
    """The settings that have an option there."""
    return [found.replace("-", "_") for found in re.findall(r"^  --(\S+) ", text, flags=re.MULTILINE)]


def test_every_command_stands_under_its_heading() -> None:
    found = sections(helped())
    for heading, commands in COMMANDS.items():
        for name, told in commands.items():
            assert re.search(rf"^  {name} +{re.escape(told)}$", found[heading], flags=re.MULTILINE)
    assert set(found) == {"Options", *COMMANDS}


@pytest.mark.parametrize("name", cli.list_commands(CONTEXT))
def test_help_of_a_command_begins_as_the_list_says_and_names_every_option_in_80_columns(name: str) -> None:
    command, text = command_of(name), helped(name)
    assert command.name == name
    assert command.get_short_help_str(200) == TOLD[name]
    assert max(map(len, text.splitlines())) <= 80
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.opts[0] in text


@pytest.mark.parametrize("name", TAKES)
def test_every_option_stands_under_its_title_and_what_is_needed_first_in_two_screens(name: str) -> None:
    takes, found, first = TAKES[name], sections(helped(name)), helped(name, is_whole=False)
    for title, settings in takes.by_title.items():
        assert listed(found[title]) == [setting.name for setting in settings]
    assert len(first.splitlines()) <= 80
    every = [setting.name for setting in takes.settings] + [own.field.name for own in takes.own_options]
    shown = set(listed(first)) - {"help", "help_all"}
    assert shown <= set(every)
    if len(every) >= 20:
        assert shown == set(every) & set(FIRST)
        assert re.search(r"^  --help-all  Show all \d+ options and exit\.$", first, flags=re.MULTILINE)


def test_every_first_option_is_one_of_a_command() -> None:
    assert set(FIRST) <= {setting.name for takes in TAKES.values() for setting in takes.settings}


def test_dpprof_alone_begins_with_questions_and_their_commands(called: Run) -> None:
    alone = fine(called())
    assert alone.stdout == fine(called("--help")).stdout
    asked = re.findall(r"^  (\S.*\?)\n    dpprof (\w+)", alone.stdout, flags=re.MULTILINE)
    assert [command for _, command in asked] == ["sweep", "fit", "plan", "watch"]


def test_choices_are_told_once_and_defaults_where_there_is_one() -> None:
    text = " ".join(helped("profile").split())
    device = "auto is CUDA if available, else the CPU; for an estimate always CUDA."
    assert f"--device auto|cpu|cuda {device}" in text
    assert "One of: standard (StandardTrainer), flat (DPSGDTrainer), ghost" in text
    assert "[default: 1800]" in text
    assert "[default: ]" not in text

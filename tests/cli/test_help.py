"""`--help`: commands by what they are for, options by what they set, all within 80 columns."""

import re

import click
import pytest
from click.testing import CliRunner
from conftest import Run, fine

from dpprof.cli.main import COMMANDS, cli
from dpprof.config.options import COMMANDS as TAKES
from dpprof.config.options import FIRST

CONTEXT = click.Context(cli)
NAMES = cli.list_commands(CONTEXT)


def helped(*arguments: str, is_whole: bool = True) -> str:
    command = cli.get_command(CONTEXT, arguments[0]) if arguments else None
    folds = is_whole and any(
        not getattr(option, "is_first", True) for option in getattr(command, "params", ())
    )
    ended = CliRunner().invoke(cli, [*arguments, "--help-all" if folds else "--help"], terminal_width=80)
    assert ended.exit_code == 0
    return ended.output


def sections(text: str) -> dict[str, str]:
    """The text under each heading."""
    found = re.findall(r"^(\S.*):\n((?:  .*\n|\n)+)", text, flags=re.MULTILINE)
    return dict(found)


def test_every_command_stands_under_its_heading() -> None:
    found = sections(helped())
    for heading, commands in COMMANDS.items():
        for name, told in commands.items():
            assert re.search(rf"^  {name} +{re.escape(told)}$", found[heading], flags=re.MULTILINE)
    assert set(found) == {"Options", *COMMANDS}


@pytest.mark.parametrize("name", TAKES)
def test_every_option_stands_under_its_title(name: str) -> None:
    found = sections(helped(name))
    for title, settings in TAKES[name].by_title.items():
        listed = re.findall(r"^  --(\S+) ", found[title], flags=re.MULTILINE)
        assert listed == [setting.name.replace("_", "-") for setting in settings]


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_of_itself_what_the_list_says(name: str) -> None:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    assert command.name == name
    told = {name: told for commands in COMMANDS.values() for name, told in commands.items()}
    assert command.get_short_help_str(200) == told[name]


def test_no_command_has_an_unknown_name() -> None:
    assert cli.get_command(CONTEXT, "nothing") is None
    ended = CliRunner().invoke(cli, ["nothing"])
    assert ended.exit_code == 2
    assert "No such command 'nothing'" in ended.output


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_named_and_no_line_is_wider_than_80_columns(name: str) -> None:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    text = helped(name)
    assert max(map(len, text.splitlines())) <= 80
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.opts[0] in text


@pytest.mark.parametrize("name", TAKES)
def test_help_lists_what_is_needed_first_within_two_screens(name: str) -> None:
    text = helped(name, is_whole=False)
    assert len(text.splitlines()) <= 80
    own = [option.field.name for option in TAKES[name].own_options]
    every = [setting.name for setting in TAKES[name].settings] + own
    listed = {found.replace("-", "_") for found in re.findall(r"^  --(\S+) ", text, flags=re.MULTILINE)}
    assert listed - {"help", "help_all"} <= set(every)
    if len(every) >= 20:
        assert listed - {"help", "help_all"} == set(every) & set(FIRST)
        assert re.search(r"^  --help-all  Show all \d+ options and exit\.$", text, flags=re.MULTILINE)


def test_every_first_option_is_one_of_a_command() -> None:
    assert set(FIRST) <= {setting.name for takes in TAKES.values() for setting in takes.settings}


def test_dpprof_alone_begins_with_questions_and_their_commands(called: Run) -> None:
    alone = fine(called())
    assert alone.stdout == fine(called("--help")).stdout
    asked = re.findall(r"^  (\S.*\?)\n    dpprof (\w+)", alone.stdout, flags=re.MULTILINE)
    assert [command for _, command in asked] == ["sweep", "fit", "plan", "watch"]


def test_choices_are_told_once_and_defaults_where_there_is_one() -> None:
    text = " ".join(helped("profile").split())
    assert (
        "--device auto|cpu|cuda auto is CUDA if available, else the CPU; for an estimate always CUDA." in text
    )
    assert "One of: standard (StandardTrainer), flat (DPSGDTrainer), ghost" in text
    assert "[default: 1800]" in text
    assert "[default: ]" not in text

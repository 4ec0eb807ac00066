"""README and the pages under docs: links, commands, filters and screenshots."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import make_screenshots
import pytest
from conftest import ROOT
from mlflow import MlflowClient

from dpprof.cli.main import cli

GUIDE = ROOT / "docs" / "comparing_runs.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *PAGES]
SCREENSHOTS = sorted(path.name for path in (ROOT / "docs" / "screenshots").iterdir())
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `dpprof` command, in a code block or in backticks, without what a shell would take:
    comments, pipes, redirections.
    """
    lines = re.findall(r"^dpprof .+$", "\n".join(CODE_BLOCK.findall(text)), re.MULTILINE)
    for line in lines + re.findall(r"`(dpprof [^`]+)`", CODE_BLOCK.sub("", text)):
        words = shlex.split(line, comments=True)
        end = next((i for i, word in enumerate(words) if word in ("|", ">", "&&")), len(words))
        yield words[1:end]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_every_page_is_in_both_lists_and_begins_with_its_question() -> None:
    pages = {path.name for path in PAGES} - {"README.md"}
    assert pages == {
        link for link in LINK.findall((ROOT / "docs" / "README.md").read_text()) if "/" not in link
    }
    assert pages <= {link.removeprefix("docs/") for link in LINK.findall((ROOT / "README.md").read_text())}
    for name in pages:
        title, _, question, *_ = (ROOT / "docs" / name).read_text().splitlines()
        assert title.startswith("# ")
        assert re.fullmatch(r"\*\*.+\?\*\*", question), name


@pytest.mark.parametrize("page", TEXTS, ids=names(TEXTS))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", TEXTS, ids=names(TEXTS))
def test_every_command_and_its_options_exist(page: Path) -> None:
    for words in commands(page.read_text()):
        group = click.Context(cli)
        if words[0] in ("COMMAND", "--help"):
            continue
        name, command, rest = cli.resolve_command(group, words)
        assert command is not None, words
        context = click.Context(command, info_name=name, **command.context_settings)
        _, unknown, _ = command.make_parser(context).parse_args(rest)
        # What follows a script is the script's own.
        asked = itertools.takewhile(lambda word: word.startswith("-"), unknown)
        assert [*(asked if name == "watch" else filter(lambda word: word[0] == "-", unknown))] == [], words


def test_commands_are_found() -> None:
    block = "```\ndpprof show RUN   # what\ndpprof export A | flamegraph.pl > a\n```\n"
    text = block + "dpprof is; `dpprof` or `dpprof test`\n"
    assert [*commands(text)] == [["show", "RUN"], ["export", "A"], ["test"]]


def test_every_screenshot_is_shown_and_every_shown_one_exists() -> None:
    shown = {
        Path(link).name for page in TEXTS for link in LINK.findall(page.read_text()) if "screenshots/" in link
    }
    assert sorted(shown) == SCREENSHOTS


def test_the_script_makes_every_screenshot() -> None:
    assert make_screenshots.pictures() == SCREENSHOTS


def test_mlflow_understands_every_filter(swept: Path) -> None:
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    filters = re.findall(r"^\| `(\w+\..+?)` \|", GUIDE.read_text(), re.MULTILINE)
    assert len(filters) > 3
    found = {condition: client.search_runs(experiments, condition) for condition in filters}
    names = [run.info.run_name for run in found['tags.dpprof.kind = "sweep"']]
    assert names == ["grid é"]

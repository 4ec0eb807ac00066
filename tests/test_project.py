"""The project's own files agree: version, changelog, citation, and what is declared to be needed."""

import ast
import importlib.metadata
import re
import sys
import tomllib

from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dpprof

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEADING = re.compile(
    r"^## (?:\[Unreleased\] (?P<next>[\d.]+)|(?P<released>[\d.]+) - (?P<date>[\d-]+))$", re.M
)


def test_the_version_is_the_changelog_s() -> None:
    newest, *_ = HEADING.finditer((ROOT / "CHANGELOG.md").read_text())
    assert dpprof.__version__ == (newest["released"] or f"{newest['next']}.dev0")


def test_the_citation_names_the_last_release() -> None:
    headings = HEADING.finditer((ROOT / "CHANGELOG.md").read_text())
    last = next(heading for heading in headings if heading["released"])
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {last['released']}\ndate-released: {last['date']}\n" in citation


def brought(name: str) -> set[str]:
    """What a distribution needs itself: it comes with it."""
    return {canonicalize_name(Requirement(line).name) for line in importlib.metadata.requires(name) or []}


def test_what_is_imported_is_declared() -> None:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    declared: set[str] = {
        canonicalize_name(Requirement(line).name) for line in [*PROJECT["dependencies"], *extras]
    }
    declared |= brought("jinja2") | brought("matplotlib") | brought("requests") | {"-typeshed"}
    homes = importlib.metadata.packages_distributions()
    missing = {}
    for path in sorted((ROOT / "dpprof").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"dpprof"}:
                found = {canonicalize_name(home) for home in homes.get(name, [name])}
                if not found & declared:
                    missing[name] = path.name
    assert missing == {}

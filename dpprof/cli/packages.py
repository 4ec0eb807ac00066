"""Check that the packages are there which dpprof's metadata, or a clone's pyproject.toml, asks for."""

import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from dpprof.errors import ConfigError

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def check_packages() -> None:
    """Raise ConfigError that names every required package that is missing, too old or too new."""
    wrong = list(_wrong(required()))
    if wrong:
        raise ConfigError(f"packages: {'; '.join(wrong)}. Install with: pip install -e .")


def required() -> list[str]:
    """Return the requirements, as `opacus>=1.6,<2`, without those of extras."""
    project = tomllib.loads(_PROJECT.read_text()).get("project", {}) if _PROJECT.exists() else {}
    if project.get("name") == "dpprof":
        return list(project["dependencies"])
    return [one for one in metadata.requires("dpprof") or () if "extra ==" not in one]


def _wrong(requirements: list[str]) -> Iterator[str]:
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError:
        yield "packaging is missing"
        return
    for line in requirements:
        needed = Requirement(line)
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            yield f"{needed.name} is missing (needs {needed.specifier})"
            continue
        if not needed.specifier.contains(version, prereleases=True):
            yield f"{needed.name} is {version} (needs {needed.specifier})"

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dpprof.cli.command import MINIMUM, check_packages
from dpprof.errors import ConfigError

PROJECT = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
RANGES = [Requirement(line) for line in PROJECT["dependencies"]]


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Pretend that just these packages are installed."""

    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_the_installed_packages_are_good_enough() -> None:
    check_packages()


def test_the_oldest_releases_are_those_of_the_project() -> None:
    bounds = {
        needed.name: str(spec) for needed in RANGES for spec in needed.specifier if spec.operator == ">="
    }
    assert bounds == {name: f">={oldest}" for name, oldest in MINIMUM.items()}


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [
        *((version, True) for version in ("2.11", "2.11.0+cu130", "2.12.1.dev3", "2.100.0", "10.0")),
        *((version, False) for version in ("2.9.1", "2.10.0+cu999", "1.99", "2.2")),
    ],
)
def test_the_oldest_release_that_is_enough(
    monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool
) -> None:
    installed(monkeypatch, torch=version)
    if is_enough:
        check_packages({"torch": "2.11"})
    else:
        with pytest.raises(ConfigError, match=r"torch is .* \(needs 2\.11 or newer\)"):
            check_packages({"torch": "2.11"})


def test_every_wrong_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, torch="2.11.0", mlflow="2.0.0")
    with pytest.raises(ConfigError, match=r"opacus is missing .*; mlflow is 2\.0\.0 ") as refused:
        check_packages({"torch": "2.11", "opacus": "1.6", "mlflow": "3.13"})
    assert "torch" not in str(refused.value)

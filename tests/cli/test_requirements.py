import importlib.metadata
import sys
from pathlib import Path

import pytest

from dpprof.cli import packages
from dpprof.cli.packages import check_packages
from dpprof.errors import ConfigError


def needs(monkeypatch: pytest.MonkeyPatch, *requirements: str, **versions: str) -> None:
    """Pretend that dpprof has these requirements, and that just these packages are installed."""

    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(packages, "required", lambda: list(requirements))


def test_the_installed_packages_are_good_enough() -> None:
    check_packages()


@pytest.mark.parametrize("of_another", [None, "", '[project]\nname = "mine"\ndependencies = []'])
def test_an_installation_needs_what_its_clone_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_another: str | None
) -> None:
    """Without what its extras need; beside another project's file, too."""
    of_clone = packages.required()
    assert "opacus>=1.6,<2" in of_clone
    if of_another is not None:
        (tmp_path / "pyproject.toml").write_text(of_another)
    monkeypatch.setattr(packages, "_PROJECT", tmp_path / "pyproject.toml")
    listed = [*of_clone, 'submitit>=1.5.4; extra == "slurm"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: listed)
    assert packages.required() == of_clone


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [
        *((version, True) for version in ("2.11", "2.11.0+cu130", "2.12.1.dev3", "2.100.0")),
        *((version, False) for version in ("2.9.1", "2.10.0+cu999", "1.99", "2.2", "10.0")),
    ],
)
def test_the_releases_that_are_taken(monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool) -> None:
    needs(monkeypatch, "torch>=2.11,<10", torch=version)
    if is_enough:
        check_packages()
    else:
        with pytest.raises(ConfigError, match=r"torch is .* \(needs <10,>=2\.11\)"):
            check_packages()


def test_every_wrong_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(monkeypatch, "torch>=2.11", "opacus>=1.6,<2", "mlflow>=3.13", torch="2.11.0", mlflow="2.0.0")
    with pytest.raises(ConfigError, match=r"opacus is missing .*; mlflow is 2\.0\.0 ") as refused:
        check_packages()
    assert "torch" not in str(refused.value)


def test_what_checks_them_may_be_missing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    with pytest.raises(ConfigError, match="packages: packaging is missing"):
        check_packages()

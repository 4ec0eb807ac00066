import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from conftest import refusal

from dpprof.cli import packages
from dpprof.cli.packages import check_packages


def needs(monkeypatch: pytest.MonkeyPatch, *requirements: str, **versions: str) -> None:
    """Pretend that dpprof has these requirements, and that just these packages are installed."""

    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(packages, "required", lambda: list(requirements))


def test_an_installation_needs_what_its_clone_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without what its extras need; beside another project's file, too."""
    of_clone, project = packages.required(), tmp_path / "pyproject.toml"
    assert "opacus>=1.6,<2" in of_clone
    monkeypatch.setattr(packages, "_PROJECT", project)
    listed = [*of_clone, 'submitit>=1.5.4; extra == "slurm"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: listed)
    assert packages.required() == of_clone
    for of_another in ("", '[project]\nname = "mine"\ndependencies = []'):
        project.write_text(of_another)
        assert packages.required() == of_clone


def test_the_releases_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.11", "2.11.0+cu130", "2.12.1.dev3", "2.100.0"):
        needs(monkeypatch, "torch>=2.11,<10", torch=version)
        check_packages()
    for version in ("2.9.1", "2.10.0+cu999", "1.99", "2.2", "10.0"):
        needs(monkeypatch, "torch>=2.11,<10", torch=version)
        assert f"torch is {version} (needs <10,>=2.11)" in refusal(check_packages)


def test_every_wrong_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(monkeypatch, "torch>=2.11", "opacus>=1.6,<2", "mlflow>=3.13", torch="2.11.0", mlflow="2.0.0")
    said = refusal(check_packages)
    assert re.search(r"opacus is missing .*; mlflow is 2\.0\.0 ", said)
    assert "torch" not in said


def test_what_checks_them_may_be_missing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert "packages: packaging is missing" in refusal(check_packages)

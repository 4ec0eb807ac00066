"""A workload's module is found without importing it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.workload_module import refuse_missing_module
from dpprof.errors import ConfigError
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD


def test_a_missing_module_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no module nosuch: run from"):
        refuse_missing_module("nosuch.a:b", LocalLauncher())


@pytest.mark.parametrize("workload", ["unimportable:f", "package.deep:f", "spread.deep:f", BUILT_IN_WORKLOAD])
def test_a_module_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unimportable.py").write_text("raise SystemExit")
    Path("package").mkdir()
    Path("package", "__init__.py").write_text("raise SystemExit")
    Path("spread").mkdir()
    refuse_missing_module(workload, LocalLauncher())
    assert not {"unimportable", "package", "spread"} & set(sys.modules)


def test_another_machine_may_have_it() -> None:
    elsewhere: Any = SimpleNamespace(machine=object())
    refuse_missing_module("nosuch:f", elsewhere)

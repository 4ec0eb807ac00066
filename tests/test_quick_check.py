"""The quick check in small checkouts, with the real programs; its time is over when a test says so."""

import importlib.metadata
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import quick_check
from conftest import ROOT
from quick_check import Checks, run_tests

PASSES = "def test_it():\n    assert True\n"
FAILS = "def test_it():\n    assert False\n"
ENDLESS = """import time
from pathlib import Path


def test_quick():
    pass


def test_endless():
    Path("begun").touch()
    time.sleep(1000)
"""


class UntilBegun(Checks):
    """Has time until a file exists."""

    def __init__(self, file: Path) -> None:
        super().__init__(0)
        self.file = file

    def remaining_s(self) -> float:
        return 0 if self.file.exists() else 1000


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare pytest the plugins, which take longest to load."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def outcome(folder: Path, *texts: str) -> tuple[list[str], list[str], list[str]]:
    """What passed, failed and was left of test files with these texts: test_0.py, test_1.py, ..."""
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    files = [f"test_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        (folder / file).write_text(text)
    checks = UntilBegun(folder / "begun")
    run_tests(folder, files[::-1], checks)
    return checks.passed, checks.failed, checks.left


def test_all_files_are_run_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_check, "BATCH", 2)
    assert outcome(tmp_path, PASSES, PASSES, "") == (["3 test files"], [], [])
    assert outcome(tmp_path, PASSES, "raise SystemError", FAILS) == ([], ["3 test files"], [])


def test_files_that_were_not_finished_are_counted(tmp_path: Path) -> None:
    left = "2 of 4 test files, from test_1.py on"
    assert outcome(tmp_path, PASSES, ENDLESS, PASSES, PASSES) == (["2 test files"], [], [left])
    (tmp_path / "begun").unlink()
    assert outcome(tmp_path, PASSES, ENDLESS, FAILS, PASSES) == ([], ["2 test files"], [left])
    assert outcome(tmp_path, PASSES) == ([], [], ["1 of 1 test file, from test_0.py on"])


def test_what_ended_when_the_time_was_over_is_not_stopped(tmp_path: Path) -> None:
    checks = UntilBegun(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    process.wait()
    assert quick_check.ended(process, checks, signal.SIGTERM) == 3
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    assert quick_check.ended(process, checks, signal.SIGTERM) is None
    assert process.returncode == -signal.SIGTERM


def test_only_what_was_checked_as_a_whole_passes(capsys: pytest.CaptureFixture[str]) -> None:
    checks = Checks(0)
    checks.add("lint", 0)
    assert (checks.exit_code(), capsys.readouterr().out) == (0, "passed: lint\n")
    checks.add("types", None)
    left = "not checked, for want of time: types. .ci/run checks everything\n"
    assert (checks.exit_code(), capsys.readouterr().out) == (2, f"passed: lint\n{left}")
    checks.add("format", 1)
    assert (checks.exit_code(), capsys.readouterr().out) == (1, f"passed: lint\nfailed: format\n{left}")


def test_a_checkout_is_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    needed = 'name = "dpprof"\ndependencies = ["mypy>=1"]\noptional-dependencies.test = ["ruff"]\n'
    tools = '[tool.pytest.ini_options]\n[tool.mypy]\nfiles = ["tests"]\n'
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{needed}{tools}")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(PASSES)
    (tmp_path / "tests" / "test_types.py").write_text(
        "def test_it() -> None:\n    number: int = ''\n    assert not number\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert quick_check.main(tmp_path, 600) == 1
    output = capfd.readouterr().out
    assert "3 files, which 2 test files can reach" in output
    assert "mypy has no cache here" in output
    assert "Incompatible types in assignment" in output
    assert output.splitlines()[-1] == "failed: format, types"


def test_an_environment_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = 'dependencies = ["torch>=99", "pytest>=8"]\noptional-dependencies.test = ["no-such-package"]\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "dpprof"\n{needed}')
    assert quick_check.main(tmp_path, 600) == 1
    lacking = f"torch>=99 (it has {importlib.metadata.version('torch')}), no-such-package"
    installs = "scripts/test_run.sh installs what is needed."
    assert capsys.readouterr().out == f"This environment lacks {lacking}. {installs}\n"


def test_one_process_runs_files_in_the_order_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    files = ["tests/test_sizes.py", "tests/drive/test_sweep_stopped.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    collected = [line.partition("::")[0] for line in output.splitlines() if "::" in line]
    assert list(dict.fromkeys(collected)) == files

"""Format, lint, types, and the tests nearest to what changed, as far as two minutes go: `.ci/run --quick`.

    python scripts/quick_check.py [SECONDS]

Runs in this checkout and the active environment, where it installs nothing. mypy and the tests
(`tests_of_changes.py`) run side by side. What has not ended when the time is over is stopped, and named as
not checked. Exit code 0: everything was checked and passed; 1: something failed; 2: nothing failed, but not
everything was checked.
"""

import argparse
import importlib.metadata
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests_of_changes import find_tests, number

ROOT = Path(__file__).parent.parent
TIME_S = 120
# What pytest gets, of the time, to undo what a stopped test had set up.
STOPPING_S = 10
# Files of the first batch. pytest collects a whole batch before it runs the first test, so that small ones
# begin soon, but it starts anew for each: every further batch is as large as all before.
BATCH = 8
NO_TESTS_COLLECTED = 5
POLL_S = 0.1


class Checks:
    """What failed and what was not checked, in words, until `deadline` (`time.monotonic`)."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.left: list[str] = []

    def remaining_s(self) -> float:
        """The time that is left to begin and run something."""
        return max(0.0, self.deadline - STOPPING_S - time.monotonic())

    def add(self, name: str, code: int | None, left: str = "") -> None:
        """Note a check's exit code, or None if it was stopped; `left` says more of what was not checked."""
        if code is None:
            self.left.append(left or name)
        else:
            (self.failed if code else self.passed).append(name)

    def exit_code(self) -> int:
        """Say what passed, what failed and what was not checked."""
        if self.passed:
            print(f"passed: {', '.join(self.passed)}")
        if self.failed:
            print(f"failed: {', '.join(self.failed)}")
        if self.left:
            print(f"not checked, for want of time: {'; '.join(self.left)}. .ci/run checks everything")
        return 1 if self.failed else 2 if self.left else 0


def ended(process: "subprocess.Popen[bytes]", checks: Checks, stop: signal.Signals) -> int | None:
    """Wait for a process, and return its exit code; None if the time is over first: then it is stopped."""
    while process.poll() is None and checks.remaining_s():
        time.sleep(POLL_S)
    if process.returncode is not None:
        return process.returncode
    process.send_signal(stop)
    try:
        process.wait(STOPPING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def run_tests(root: Path, files: Sequence[str], checks: Checks) -> None:
    """Run test files in their order, in one process, until the time is over."""
    done, failed = 0, 0
    while done < len(files) and checks.remaining_s():
        batch = files[done : done + max(BATCH, done)]
        with TemporaryDirectory() as place:
            results = Path(place, "results.xml")
            options = ["-q", "--no-header", f"--junitxml={results}", "-o", "junit_family=xunit1"]
            process = subprocess.Popen([sys.executable, "-m", "pytest", *options, *batch], cwd=root)
            code = ended(process, checks, signal.SIGINT)
            finished, wrong = read_results(results, batch)
        failed += wrong or code not in (0, None, NO_TESTS_COLLECTED)
        if code is None:
            done += finished
            break
        done += len(batch)
    if done:
        checks.add(number(done, "test file"), int(failed > 0))
    elif failed:
        checks.add("tests", 1)
    if done < len(files):
        checks.add(
            "tests", None, f"{len(files) - done} of {number(len(files), 'test file')}, from {files[done]} on"
        )


def read_results(path: Path, batch: Sequence[str]) -> tuple[int, int]:
    """How many files of a batch were finished when another began, and how many tests failed."""
    if not path.exists():
        return 0, 0
    cases = list(ElementTree.parse(path).iter("testcase"))
    begun = {case.get("file", "") for case in cases}
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    return max((index for index, file in enumerate(batch) if file in begun), default=0), failed


def lacking_packages(root: Path) -> list[str]:
    """What pyproject.toml asks for, with the extra `test`, and the environment does not have."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lacking = []
    for line in [project["name"], *project["dependencies"], *project["optional-dependencies"]["test"]]:
        wanted = Requirement(line)
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            lacking.append(line)
        else:
            if not wanted.specifier.contains(version, prereleases=True):
                lacking.append(f"{line} (it has {version})")
    return lacking


def main(root: Path, seconds: float) -> int:
    """Check everything; return the exit code."""
    checks = Checks(time.monotonic() + seconds)
    lacking = lacking_packages(root)
    if lacking:
        print(f"This environment lacks {', '.join(lacking)}. scripts/test_run.sh installs what is needed.")
        return 1
    found = find_tests(root)
    print("\n".join(found.lines()), flush=True)
    for name, arguments in (("format", ["format", "--check", "."]), ("lint", ["check", "."])):
        command = [sys.executable, "-m", "ruff", *arguments]
        checks.add(name, subprocess.run(command, cwd=root, check=False).returncode)
    if not (root / ".mypy_cache").exists():
        print("mypy has no cache here: the first time it takes minutes", flush=True)
    with TemporaryDirectory() as place, Path(place, "mypy.log").open("w+b") as log:
        command = [sys.executable, "-m", "mypy"]
        types = subprocess.Popen(command, cwd=root, stdout=log, stderr=subprocess.STDOUT)
        try:
            run_tests(root, list(found.tests), checks)
        finally:
            code = ended(types, checks, signal.SIGTERM)
        log.seek(0)
        said = log.read().decode()
    print(said, end="", flush=True)
    if ": error: " in said:
        checks.add("types", 1)
    elif code is not None:
        checks.add("types", code)
    if code is None:
        checks.add("types", None, "types (mypy goes on from its cache next time)")
    return checks.exit_code()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("seconds", metavar="SECONDS", type=float, nargs="?", default=TIME_S)
    sys.exit(main(ROOT, parser.parse_args().seconds))

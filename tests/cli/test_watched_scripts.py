"""What scripts write and how they end is the same under `dpprof watch` as without.

They also tell which of their models and optimizers are still there.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import fork
from watched import record_in

from dpprof.record.record import PassStatus

TESTS = Path(__file__).parents[1]
SCRIPTS = sorted((TESTS / "watched_scripts").glob("*.py"))
# They run a profiler of their own, or measure themselves, so that dpprof cannot.
MEASURED_BY_ITSELF = {"nested", "profiled"}
# What they do is of a kind with what others do.
LESS_ODD = {"folds", "hooked", "lbfgs", "moves", "profiled", "saved", "scaler", "threads"}


def run(folder: Path, script: Path, is_watched: bool) -> int:
    """Run a script, watched or not, with files for its output, and return its exit code."""
    folder.mkdir()
    watch = ["-m", "dpprof", "watch", "--measured-steps", "3"] if is_watched else []
    ended = fork(*watch, script, cwd=folder)
    (folder / "out").write_text(ended.stdout)
    (folder / "err").write_text(ended.stderr)
    return ended.returncode


def in_its_process(folder: Path, script: Path) -> int:
    """Run a script in a process of its own, whose tracebacks have its frames alone."""
    folder.mkdir()
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        return subprocess.run(
            [sys.executable, script], cwd=folder, stdout=out, stderr=err, check=False
        ).returncode


def without_times(path: Path) -> str:
    """Return a text without numbers, as torch's profiler tells when it starts, and in which process."""
    return re.sub(r"\d+", "0", path.read_text())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, id=script.stem, marks=pytest.mark.exhaustive if script.stem in LESS_ODD else ())
        for script in SCRIPTS
    ],
)
def test_a_script_is_as_without(script: Path, tmp_path: Path) -> None:
    alone, watched = tmp_path / "alone", tmp_path / "watched"
    code = in_its_process(alone, script) if script.stem == "raises" else run(alone, script, False)
    assert run(watched, script, True) == code
    assert (watched / "out").read_text().startswith((alone / "out").read_text())
    assert without_times(watched / "err").startswith(without_times(alone / "err"))
    assert "unknown size" not in (watched / "err").read_text()
    if script.stem not in MEASURED_BY_ITSELF:
        passes = record_in(watched).passes
        finished = {name for name, one in passes.items() if one.status is PassStatus.FINISHED}
        assert finished == ({"clean"} if script.stem == "raises" else {"clean", "ledger", "trace"})

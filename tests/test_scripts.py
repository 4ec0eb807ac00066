"""The shell scripts, with stand-ins for pip and mlflow that write down how they were called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from dpprof.config.grid import build_grid
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

STAND_IN = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts with an active environment whose programs are stand-ins."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    make_environment(tmp_path / "env")
    return tmp_path


def make_environment(folder: Path) -> None:
    """An environment of stand-ins."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "mlflow"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f'export VIRTUAL_ENV="{folder}" PATH="{programs}:$PATH"\n')


def calls(checkout: Path, script: str, *arguments: str, active: str = "env", locked: str = "") -> list[str]:
    """The programs that a script calls, in order, with an active environment or none."""
    log = checkout / "calls"
    log.write_text("")
    environment = {"PATH": os.environ["PATH"], "CALLS": str(log), "LOCKED": locked}
    if active:
        environment["PATH"] = f"{checkout}/{active}/bin{os.pathsep}{os.environ['PATH']}"
        environment["VIRTUAL_ENV"] = f"{checkout}/{active}"
    subprocess.run([checkout / "scripts" / script, *arguments], env=environment, check=True)
    return log.read_text().splitlines()


def test_run_profiling_passes_arguments_on_and_installs_once(checkout: Path) -> None:
    sweep = "mlflow run . -e sweep --env-manager local -P batch_sizes=2 -P data=a b"
    arguments = ["-P", "batch_sizes=2", "-P", "data=a b"]
    install = "python -m pip install --quiet --editable ."
    assert calls(checkout, "run_profiling.sh", *arguments) == [install, sweep]
    assert calls(checkout, "run_profiling.sh", *arguments) == [sweep]
    for name in ("pyproject.toml", "constraints.txt"):
        with open(checkout / name, "a") as changed:
            changed.write("# changed\n")
        assert calls(checkout, "run_profiling.sh", *arguments) == [install, sweep]


def test_an_environment_of_the_scripts_own_has_the_pinned_versions(checkout: Path) -> None:
    install = "python -m pip install --quiet --editable . --constraint constraints.txt"
    make_environment(checkout / ".venv")
    assert calls(checkout, "run_profiling.sh", active="")[0] == install
    calls(checkout, "run_profiling.sh")  # with the versions of the active environment
    assert calls(checkout, "run_profiling.sh", locked="1")[0] == install
    assert "pip" not in " ".join(calls(checkout, "run_profiling.sh", locked="1"))


def test_the_larger_installation_serves_both_scripts(checkout: Path) -> None:
    first, *_, tests = calls(checkout, "test_run.sh", "-k", "name")
    assert first == "python -m pip install --quiet --editable .[test]"
    assert tests == "python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -k name"
    assert [call.split()[0] for call in calls(checkout, "run_profiling.sh")] == ["mlflow"]
    assert "pip" not in " ".join(calls(checkout, "test_run.sh"))


def test_run_profiling_ncu_sweeps_with_counters(checkout: Path) -> None:
    (sweep,) = [
        c for c in calls(checkout, "run_profiling_ncu.sh", "-P", "model_sizes=small") if "mlflow" in c
    ]
    options = "-P config=scripts/counters_config.json -P model_sizes=small"
    assert sweep == f"mlflow run . -e sweep --env-manager local {options}"
    config = str(ROOT / "scripts" / "counters_config.json")
    values = {"config": config, "device": "cpu", "model_sizes": "tiny"}
    grid = build_grid(values, cuda_available=lambda: False)
    cells = {(c.trainer, c.batch_size, c.seq_len) for c in grid.experiments.values()}
    assert cells == {
        (trainer, batch, seq) for trainer in DEFAULT_TRAINERS for batch in (8, 16) for seq in (256, 1024)
    }
    assert {c.counters for c in grid.experiments.values()} == {"ncu"}
    assert all({"ledger", "ceilings"} <= set(c.measuring.pass_names) for c in grid.experiments.values())


# Writes down where it is called too; makes environments like its own, and fails where it is told to.
IN_CLONE = """#!/bin/sh
echo "$PWD: $(basename "$0") $*" >> "$CALLS"
case "$*" in
    "-m venv "*) cp -R "$VIRTUAL_ENV" "$3" ;;
    "-m ruff check .") tail -n 1 pyproject.toml >> "$CALLS" ;;
    "-m $FAILING") exit 1 ;;
esac
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def committed(checkout: Path) -> Path:
    """The copy with `.ci`, as a commit that leaves nothing out, and stand-ins for all that CI calls."""
    for name in (".ci", "examples/ray_launcher"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("python", "mlflow", "dpprof", "chromium"):
        (checkout / "env" / "bin" / name).write_text(IN_CLONE)
        (checkout / "env" / "bin" / name).chmod(0o755)
    (checkout / "env" / "lib" / "python3" / "site-packages").mkdir(parents=True)
    (checkout / "tmp").mkdir()
    (checkout / ".gitignore").write_text("env\ntmp\ncalls\n")
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "All")
    return checkout


def run_ci(checkout: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` with the stand-ins, which write down their calls in `calls`."""
    programs = f"{checkout}/env/bin"
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": f"{checkout}/env",
        "CALLS": f"{checkout}/calls",
        "TMPDIR": f"{checkout}/tmp",
    }
    script = [f"{checkout}/.ci/run", *arguments]
    (checkout / "calls").write_text("")
    ended = subprocess.run(script, env=environment | more, capture_output=True, text=True, check=False)
    assert list((checkout / "tmp").iterdir()) == []
    return ended


def test_ci_tests_a_clone_with_what_is_not_committed(committed: Path) -> None:
    with open(committed / "pyproject.toml", "a") as changed:
        changed.write("# changed\n")
    (committed / "added").touch()
    ended = run_ci(committed, "-k", "name", FAILING="mypy")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (1, "failed: types"), ended.stderr
    assert "not tested, since they are not added to git: added" in ended.stdout
    lines = (committed / "calls").read_text().splitlines()
    assert lines[lines.index(next(line for line in lines if "ruff check" in line)) + 1] == "# changed"
    (tests,) = [line for line in lines if "-m pytest" in line]
    (above,) = [line for line in lines if ": dpprof profile" in line]
    assert "/with space é/dpprof: python" in tests
    assert tests.endswith("--durations=15 -k name")
    assert "/with space é: dpprof" in above


def test_ci_keeps_the_tree_that_passed(committed: Path) -> None:
    green = committed / ".git" / "ci-green"
    assert run_ci(committed, FAILING="mypy").returncode == 1
    assert not green.exists()
    ended = run_ci(committed)
    tree = git(committed, "rev-parse", "HEAD^{tree}")
    assert (ended.returncode, green.read_text()) == (0, f"{tree}\n"), ended.stderr
    assert ended.stdout.splitlines()[-1] == f"passed: tree {tree}, kept in {green}"


def test_ci_keeps_no_tree_that_it_did_not_test_as_a_whole(committed: Path) -> None:
    def last_line(*arguments: str, **more: str) -> str:
        ended = run_ci(committed, *arguments, **more)
        assert (ended.returncode, (committed / ".git" / "ci-green").exists()) == (0, False), ended.stderr
        return ended.stdout.splitlines()[-1]

    assert last_line("-k", "name") == "passed, but not kept as green: pytest got arguments"
    assert last_line(PYTEST_ADDOPTS="-x") == "passed, but not kept as green: pytest got arguments"
    (committed / "added").touch()
    assert last_line() == "passed, but not kept as green: not everything was committed"
    git(committed, "add", "added")
    assert last_line() == "passed, but not kept as green: not everything was committed"


def test_a_worktree_keeps_a_green_tree_of_its_own(committed: Path) -> None:
    git(committed, "worktree", "add", "-q", "tmp/other")
    other = committed / "tmp" / "other"
    script, programs = other / ".ci" / "run", committed / "env" / "bin"
    environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CALLS": os.devnull}
    environment |= {"VIRTUAL_ENV": str(committed / "env")}
    subprocess.run([script], env=environment, capture_output=True, check=True)
    kept = Path(git(other, "rev-parse", "--absolute-git-dir")) / "ci-green"
    assert kept.read_text().strip() == git(other, "rev-parse", "HEAD^{tree}")
    assert not (committed / ".git" / "ci-green").exists()


def test_a_quick_check_runs_here_and_installs_nothing(committed: Path) -> None:
    check = f"{committed}: python scripts/quick_check.py"
    assert run_ci(committed, "--quick", "60").returncode == 0
    assert (committed / "calls").read_text().splitlines() == [f"{check} 60"]
    make_environment(committed / ".venv")
    (committed / ".venv" / "bin" / "python").write_text(IN_CLONE)
    assert run_ci(committed, "--quick", PATH=os.environ["PATH"], VIRTUAL_ENV="").returncode == 0
    assert (committed / "calls").read_text().splitlines() == [check]

"""Which tests a change reaches, by imports and since when, in a small repository; and in dpprof's own."""

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from import_graph import ImportGraph
from tests_of_changes import Found, base_of, find_tests, is_test, listed

FILES = {
    "dpprof/__init__.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from dpprof.face import profile as profile
def __getattr__(name):
    from dpprof.face import profile
    return profile
""",
    "dpprof/units.py": "MIB = 2**20",
    "dpprof/face.py": "def profile(): ...",
    "dpprof/cli/__init__.py": "",
    "dpprof/cli/main.py": 'def load(name): return f"dpprof.cli.{name}"',
    "dpprof/cli/sweep.py": "def sweep():\n    from dpprof.measure import clean",
    "dpprof/cli/show.py": "from . import words",
    "dpprof/cli/words.py": "from ..units import MIB",
    "dpprof/__main__.py": "from dpprof.cli.main import load",
    "dpprof/measure/__init__.py": "",
    "dpprof/measure/clean.py": "",
    "dpprof/table.py": 'PASSES = {"clean": "dpprof.measure.clean:run", "kind": "dpprof.kind"}',
    "dpprof/typed.py": """
import typing
if typing.TYPE_CHECKING:
    from dpprof.units import MIB
else:
    from dpprof.measure import clean
""",
    "benchmarks/loop.py": "import dpprof.face",
    "tests/conftest.py": """
import dpprof.units
import turns
from dpprof.table import PASSES
ROOT = "."
def run_dpprof(): return ["python", "-m", "dpprof"]
def swept(): return run_dpprof()
def limited(): return PASSES
def pytest_runtest_protocol(): return turns
""",
    "tests/turns.py": "",
    "tests/example_model.py": "",
    "tests/data.json": "",
    "tests/config/test_typed.py": "from conftest import ROOT\nfrom dpprof.typed import x",
    "tests/test_face.py": "from dpprof import profile",
    "tests/test_import.py": "import dpprof\ndef test(): dpprof.profile()",
    "tests/test_loop.py": "from loop import run",
    "tests/test_cli.py": "from conftest import run_dpprof",
    "tests/test_swept.py": "def test(swept): ...",
    "tests/test_limited.py": "@pytest.mark.usefixtures('limited')\ndef test(): ...",
    "tests/test_model.py": "WORKLOAD = 'example_model:make'\nFILE = ROOT / 'tests' / 'data.json'",
}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def change(folder: Path, *files: str, committed: bool = True) -> str:
    """Add a line to files, and commit everything; return the last commit."""
    for file in files:
        with (folder / file).open("a") as changed:
            changed.write("\n# changed\n")
    if committed:
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "Change")
    return git(folder, "rev-parse", "HEAD")


def steps_in(found: Found) -> dict[str, int]:
    return {Path(path).stem: far for path, far in found.tests.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the made-up repository."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def checkout(folder: Path) -> Path:
    """The same, as one commit on the branch main."""
    git(folder, "init", "-qb", "main")
    change(folder)
    return folder


HOOKED = {
    "test_face",
    "test_import",
    "test_loop",
    "test_cli",
    "test_swept",
    "test_limited",
    "test_model",
    "test_typed",
}


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ("tests/test_cli.py", {"test_cli": 0}),
        ("benchmarks/loop.py", {"test_loop": 1}),
        ("dpprof/typed.py", {"test_typed": 1}),
        # Not by an import for types, nor by one of conftest.py's that no test uses.
        ("dpprof/units.py", {"test_cli": 5, "test_swept": 6}),
        ("dpprof/face.py", {"test_face": 1, "test_import": 1, "test_loop": 2}),
        ("dpprof/table.py", {"test_limited": 2}),
        ("dpprof/measure/clean.py", {"test_typed": 2, "test_limited": 3, "test_cli": 5, "test_swept": 6}),
        ("dpprof/cli/main.py", {"test_cli": 3, "test_swept": 4}),
        ("tests/example_model.py", {"test_model": 1}),
        ("tests/data.json", {"test_model": 1}),
        ("tests/turns.py", dict.fromkeys(HOOKED, 2)),
        ("tests/conftest.py", dict.fromkeys(HOOKED, 1)),
    ],
)
def test_a_change_reaches_tests_by_imports(folder: Path, changed: str, steps: dict[str, int]) -> None:
    found = ImportGraph(folder, FILES).steps_to([changed])
    assert {Path(path).stem: far for path, far in found.items() if is_test(path)} == steps


def test_a_package_is_loaded_by_all_that_import_from_it(folder: Path) -> None:
    steps = ImportGraph(folder, FILES).steps_to(["dpprof/measure/__init__.py"])
    assert steps["dpprof/table.py"] == steps["dpprof/typed.py"] == steps["dpprof/cli/sweep.py"] == 1
    assert "dpprof/cli/show.py" not in steps


def test_a_file_that_cannot_be_parsed_is_named(folder: Path) -> None:
    (folder / "dpprof" / "typed.py").write_text("def")
    graph = ImportGraph(folder, FILES)
    assert [text.partition(" ")[0] for text in graph.unread] == ["dpprof/typed.py"]
    assert graph.steps_to(["dpprof/typed.py"])["tests/config/test_typed.py"] == 1


def test_what_changed_comes_first_and_what_reaches_it_after(checkout: Path) -> None:
    change(checkout, "dpprof/units.py")
    (checkout / "tests" / "test_new.py").touch()
    change(checkout, "dpprof/table.py", committed=False)
    (checkout / "benchmarks" / "loop.py").unlink()
    (checkout / "tests" / "test_face.py").unlink()
    (checkout / "dpprof" / "alone.py").touch()
    found = find_tests(checkout)
    assert list(steps_in(found).items()) == [
        *(("test_new", 0), ("test_loop", 1), ("test_limited", 2), ("test_cli", 5), ("test_swept", 6)),
    ]
    assert found.untested == ["dpprof/alone.py"]
    assert "6 files, which 5 test files can reach" in found.lines()[0]


def test_tests_that_read_all_files_are_one_step_away(checkout: Path) -> None:
    for name in ("sizes", "docs", "scripts"):
        (checkout / "tests" / f"test_{name}.py").touch()
    change(checkout)
    change(checkout, "dpprof/alone.py", "dpprof/face.py", "README.md")
    found = find_tests(checkout)
    assert list(steps_in(found)) == ["test_docs", "test_sizes", "test_face", "test_import", "test_loop"]
    assert steps_in(found)["test_sizes"] == steps_in(found)["test_face"] == 1
    assert found.untested == ["dpprof/alone.py"]


def test_commits_count_since_the_branch_left_main(checkout: Path) -> None:
    assert base_of(checkout)[1] == "the beginning"
    assert set(steps_in(find_tests(checkout))) == HOOKED
    first = change(checkout, "dpprof/table.py")
    assert base_of(checkout) == ("HEAD~1", "the last commit but one")
    assert set(steps_in(find_tests(checkout))) == {"test_limited"}
    git(checkout, "checkout", "-qb", "mine")
    assert base_of(checkout) == (first, f"the merge base with main ({first[:9]})")
    assert steps_in(find_tests(checkout)) == {}
    change(checkout, "benchmarks/loop.py")
    change(checkout, "tests/data.json")
    assert set(steps_in(find_tests(checkout))) == {"test_loop", "test_model"}


def test_on_main_commits_count_that_were_not_pushed(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clone = tmp_path_factory.mktemp("elsewhere") / "clone"
    git(checkout, "clone", "-q", ".", str(clone))
    pushed = git(clone, "rev-parse", "HEAD")
    change(clone, "benchmarks/loop.py")
    change(clone, "tests/data.json")
    assert base_of(clone) == (pushed, f"the merge base with origin/main ({pushed[:9]})")
    assert set(steps_in(find_tests(clone))) == {"test_loop", "test_model"}


def test_only_what_came_after_the_green_tree_counts(checkout: Path) -> None:
    change(checkout, "benchmarks/loop.py")
    tree = git(checkout, "rev-parse", "HEAD^{tree}")
    (checkout / ".git" / "ci-green").write_text(f"{tree}\n")
    assert steps_in(find_tests(checkout)) == {}
    change(checkout, "tests/data.json")
    change(checkout, "dpprof/table.py")
    assert set(steps_in(find_tests(checkout))) == {"test_model", "test_limited"}
    assert base_of(checkout)[1] == f"the tree that .ci/run passed last ({tree[:9]})"
    (checkout / ".git" / "ci-green").write_text("0" * 40)
    assert base_of(checkout)[0] == "HEAD~1"


def test_dpprof_s_commands_reach_what_they_start() -> None:
    graph = ImportGraph(ROOT, listed(ROOT, "ls-files"))
    assert graph.unread == []
    # By the fixture `swept`, the command's name, the measuring process's path, and the table of trainers.
    for changed in (
        "dpprof/cli/sweep.py",
        "dpprof/measure/__main__.py",
        "dpprof/measure/trainers/standard.py",
    ):
        assert "tests/test_docs.py" in graph.steps_to([changed])
    assert "tests/test_sizes.py" not in graph.steps_to(["dpprof/cli/sweep.py"])

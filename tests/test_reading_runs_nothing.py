"""Folders, stores, plans and exports of others are data: no command that reads them runs their code."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, call_dpprof, environment, fine, lay_out_store, run_dpprof
from example_plans import of_every_trainer

PLACE = "evil:T"
# Names of code that needs no file, and of a file within the folder that is read.
OTHER_PLACES = ("this:s", "unittest.__main__:x", "runs.shared.evil:T")
EVIL = 'from pathlib import Path\nPath("{mark}").touch()\nclass T:\n    def step(self): pass\n'
# Settings that name code, or a file.
NAMES = {"trainer", "workload", "data", "target", "loop", "model_config"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, swept: Path) -> Path:
    """A folder with runs of somebody else, their plan and their export, and the code that they name."""
    tmp_path = tmp_path_factory.mktemp("shared")
    lay_out_store(tmp_path)
    shutil.copytree(swept / "runs" / "grid é", tmp_path / "runs" / "shared")
    for record in (tmp_path / "runs" / "shared").glob("*/record.json"):
        if not record.parent.name.startswith(("DPGhost", "Standard")):
            shutil.rmtree(record.parent)
    for place in (tmp_path, tmp_path / "runs" / "shared"):
        (place / "evil.py").write_text(EVIL.format(mark=tmp_path / "ran"))
    (tmp_path / "plan.json").write_text(json.dumps(of_every_trainer()).replace("DPBookKeepingTrainer", PLACE))
    fine(call_dpprof(tmp_path, "export", "runs/shared", "--format", "json", "--output", "e.json"))
    return tmp_path


def texts(data: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys of each text in JSON data; of a list's items the first stands for all."""
    if isinstance(data, str):
        yield keys
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from texts(value, (*keys, key))
    elif isinstance(data, list) and data:
        yield from texts(data[0], (*keys, 0))


def violations(folder: Path, commands: list[list[str]], changes: list[tuple[str, Any, str]]) -> list[str]:
    """What the commands ran on each change."""
    cases = folder / "cases.json"
    cases.write_text(json.dumps({"commands": commands, "changes": changes}))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "audited_commands.py"), str(cases)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: list[str] = json.loads(ended.stdout.splitlines()[-1])
    assert not (folder / "ran").exists(), found
    return found


def changes_of(folder: Path, file: str, *, whole: bool) -> list[tuple[str, Any, str]]:
    """Each text of a file in turn names a module: all of them, or those that name code or a file."""
    found: list[tuple[str, Any, str]] = []
    for keys in texts(json.loads((folder / file).read_text())):
        if whole or keys[-1] in NAMES:
            found.append((file, keys, PLACE))
        if keys[-1] in ("trainer", "workload"):
            found += [(file, keys, place) for place in OTHER_PLACES]
    return found


def reading(folder: Path) -> tuple[str, list[list[str]]]:
    run = next(path for path in (folder / "runs" / "shared").glob("DPGhost*"))
    name = str(run.relative_to(folder))
    return name, [
        ["summarize", "runs/shared"],
        ["compare", "runs/shared"],
        ["compare", "e.json"],
        ["show", name],
        ["roofline", "runs/shared"],
        ["export", "runs/shared", "--output", "again.json"],
    ]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_reading_a_folder_runs_nothing(shared: Path, whole: bool) -> None:
    run, commands = reading(shared)
    changes = [
        change
        for file in (f"{run}/config.json", f"{run}/record.json", "runs/shared/sweep.json", "e.json")
        for change in changes_of(shared, file, whole=whole)
    ]
    assert len(changes) > 10
    assert violations(shared, commands, changes) == []


def test_logging_a_folder_and_comparing_a_store_run_nothing(shared: Path) -> None:
    run, _ = reading(shared)
    changes: list[tuple[str, Any, str]] = [
        (f"{run}/config.json", (key,), PLACE) for key in ("trainer", "workload")
    ]
    assert violations(shared, [["log", "runs/shared"], ["compare", "shared"]], changes) == []


def test_a_plan_runs_nothing_but_says_whose_code_it_names(shared: Path) -> None:
    commands = [[name, "--plan", "plan.json"] for name in ("verify", "profile")]
    changes = [("plan.json", ("recommended", "trainer"), PLACE)]
    assert violations(shared, [["snippet", "plan.json"], *commands], changes) == []
    ended = run_dpprof(shared, "profile", "--plan", "plan.json")
    assert ended.returncode == 2
    assert f"its row trains with {PLACE}, whose code is not dpprof's" in ended.stderr
    assert f"give --trainer {PLACE}" in ended.stderr
    assert not (shared / "ran").exists()

"""Trainers named by their place, and by their entry point."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment
from example_runs import known

from dpprof.errors import ConfigError
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.named_trainers import TrainerNames
from dpprof.vocabulary.trainer_info import TrainerInfo

TINY = ["--device", "cpu", "--trainers", "standard,mytrainer:LoopTrainer"]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> TrainerNames:
    monkeypatch.setenv("DPPROF_TRAINERS", "{}")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own_trainer"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "foreign_trainer"))
    return TrainerNames({"flat": "DPSGDTrainer"}, {})


def test_a_place_has_a_description_or_a_class(names: TrainerNames) -> None:
    trainers: dict[str, TrainerInfo] = names._trainers
    assert "loop_trainer:LOOP" in names
    assert names["dpsgd_loop"] == names["loop_trainer:LOOP"] == "LoopTrainer"
    assert trainers["LoopTrainer"].color == "#7f3c8d"
    own = TrainerNames({}, {})
    assert "LoopTrainer" in own, "a process that this one starts knows it by its name"
    assert own._trainers == trainers


def test_what_is_no_place_is_no_trainer(names: TrainerNames) -> None:
    assert "flat" in names
    for text in ("fast", "module:", ":Trainer", "a b:Trainer", "module:Trainer:more", 3):
        assert text not in names


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("no_such_module:Trainer", "No module named 'no_such_module'"),
        ("mytrainer:Nope", "has no attribute 'Nope'"),
        ("mytrainer:torch", "a class derived from TrainerBase, or of a TrainerInfo"),
        ("mytrainer:Any", "a class derived from TrainerBase, or of a TrainerInfo"),
    ],
)
def test_a_place_without_a_trainer_is_refused(place: str, says: str, names: TrainerNames) -> None:
    with pytest.raises(ConfigError, match=f"got '{place}'.*{says}"):
        assert place in names


def test_a_name_that_another_trainer_has_is_refused(names: TrainerNames) -> None:
    """The run would train with the other one."""
    assert "loop_trainer:LOOP" in names
    with pytest.raises(ConfigError, match="allowed: a class of another name, as LoopTrainer is taken"):
        assert "mytrainer:LoopTrainer" in names


def test_commands_take_the_file_of_the_walk(tmp_path: Path) -> None:
    """As `docs/own_trainer.md` tells: nothing is installed but dpprof."""
    shutil.copy(ROOT / "examples" / "own_trainer" / "mytrainer.py", tmp_path)
    for command in (
        ["verify", "--trainers", "mytrainer:LoopTrainer", "--device", "cpu"],
        ["estimate", *TINY, "--model-sizes", "tiny", "--batch-sizes", "2", "--sweep-name", "e"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "dpprof", *command],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    (verified,) = tmp_path.glob("runs/verify-*/LoopTrainer_*")
    assert json.loads((verified / "config.json").read_text())["trainer"] == "LoopTrainer"
    (estimated,) = tmp_path.glob("runs/e/LoopTrainer_*")
    assert known(known(RunFolder(estimated).read_record()).ledger).peak > 0

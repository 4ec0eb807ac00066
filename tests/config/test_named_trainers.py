"""Trainers named by their place, and by their entry point."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from conftest import ROOT, environment, fine, refusal, run_dpprof, run_python
from example_runs import known

from dpprof.config.flat import from_flat
from dpprof.config.named_trainers import load_named
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS, short_name

TINY = ["--device", "cpu", "--trainers", "standard,mytrainer:LoopTrainer"]
# A class that is named as Opacus's trainer is in short.
NAMESAKE = """
from dpprof.measure.trainers.base import TrainerBase


class flat(TrainerBase):
    def step(self, physical_batches):
        raise RuntimeError("mine ran")
"""


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tables of trainers are afterwards as they were."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own_trainer"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "foreign_trainer"))
    with mock.patch.dict(TRAINERS), mock.patch.dict(TRAINER_NAMES), mock.patch.dict(os.environ):
        yield


def test_a_place_has_a_description_or_a_class_and_what_is_none_is_left_out() -> None:
    before = dict(TRAINER_NAMES)
    load_named("flat,fast,module:, :Trainer,a b:Trainer,module:Trainer:more,3")
    assert before == TRAINER_NAMES
    load_named("standard, loop_trainer:LOOP,mytrainer:LoopTrainer")
    described, own = TRAINERS["loop_trainer:LOOP"], TRAINERS["mytrainer:LoopTrainer"]
    assert (described.color, described.short_name) == ("#7f3c8d", "dpsgd_loop")
    assert TRAINER_NAMES["dpsgd_loop"] == "loop_trainer:LOOP"
    assert (own.target, own.short_name, own.is_default) == ("mytrainer:LoopTrainer", "LoopTrainer", False)
    assert short_name("mytrainer:LoopTrainer") == "LoopTrainer"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("no_such_module:Trainer", "No module named 'no_such_module'"),
        ("mytrainer:Nope", "has no attribute 'Nope'"),
        ("mytrainer:torch", "a class derived from TrainerBase, or of a TrainerInfo"),
        ("mytrainer:Any", "a class derived from TrainerBase, or of a TrainerInfo"),
        ("quits:T", "a module that can be imported; this one calls sys.exit"),
    ],
)
def test_a_place_without_a_trainer_is_refused(
    place: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quits.py").write_text("import sys; sys.exit(0)")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = refusal(load_named, place)
    assert says in said.partition(f"got '{place}'")[2]
    assert place not in TRAINER_NAMES


def test_a_place_is_none_of_the_trainers_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(NAMESAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    load_named("mine:flat")
    assert TRAINER_NAMES["flat"] == "DPSGDTrainer"
    assert TRAINERS[TRAINER_NAMES["mine:flat"]].target == "mine:flat"
    assert short_name("mine:flat") == "mine:flat", "its short name is another's"


def test_a_place_that_was_not_named_here_is_an_unlisted_trainer() -> None:
    """Reading imports nothing; `load_named` does."""
    config = from_flat({"trainer": "this:s", "own_option": 1})
    assert (config.trainer, config.options) == ("this:s", {"own_option": 1})
    assert config.run_name.startswith("this.s_")
    assert "this" not in sys.modules


def test_verify_runs_the_class_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NAMESAKE)
    ended = run_dpprof(tmp_path, "verify", "--trainers", "mine:flat", "--device", "cpu")
    assert ended.returncode == 3, ended.stdout
    assert "RuntimeError: mine ran" in ended.stdout


def test_a_file_of_options_names_a_trainer(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "own_trainer" / "mytrainer.py", tmp_path)
    options = {"trainers": ["mytrainer:LoopTrainer"], "model_sizes": "tiny", "batch_sizes": 2}
    (tmp_path / "options.json").write_text(json.dumps(options | {"device": "cpu"}))
    fine(run_dpprof(tmp_path, "estimate", "--config", "options.json", "--sweep-name", "e"))
    assert list(tmp_path.glob("runs/e/mytrainer.LoopTrainer_*/record.json"))


def test_commands_take_the_file_of_the_walk(tmp_path: Path) -> None:
    """As `docs/own_trainer.md` tells: nothing is installed but dpprof."""
    shutil.copy(ROOT / "examples" / "own_trainer" / "mytrainer.py", tmp_path)
    for command in (
        ["verify", "--trainers", "mytrainer:LoopTrainer", "--device", "cpu"],
        ["estimate", *TINY, "--model-sizes", "tiny", "--batch-sizes", "2", "--sweep-name", "e"],
    ):
        fine(run_python(tmp_path, environment(tmp_path), "-m", "dpprof", *command))
    (verified,) = tmp_path.glob("runs/verify-*/mytrainer.LoopTrainer_*")
    assert json.loads((verified / "config.json").read_text())["trainer"] == "mytrainer:LoopTrainer"
    (estimated,) = tmp_path.glob("runs/e/mytrainer.LoopTrainer_*")
    assert known(known(RunFolder(estimated).read_record()).ledger).peak > 0

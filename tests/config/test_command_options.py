"""The options of each command, and those that a trainer, a workload or a launcher has of its own."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from conftest import refusal

from dpprof.cli.options import GroupedOptions, options_of
from dpprof.config.drive import DriveConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, parse_drive, parse_experiment, to_flat
from dpprof.config.grid import build_grid
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.options import COMMANDS, training_options
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.launcher_info import LauncherInfo
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.settings import fields, setting, take
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS
from dpprof.vocabulary.workload_info import WorkloadInfo
from dpprof.vocabulary.workloads import WORKLOADS

FOO = "DPFooTrainer"


@dataclass(frozen=True)
class FooOptions:
    beta: float = setting(0.5, "Weight of the past.", above=0)
    tree: str = setting("binary", "Shape of the tree.", choices=("binary", "flat"))


@dataclass(frozen=True)
class WideOptions:
    width: int = setting(8, "Features.", minimum=1)


@dataclass(frozen=True)
class FarOptions:
    queue: str = setting("short", "Where jobs wait.")


def listed(monkeypatch: pytest.MonkeyPatch, name: str, options: type) -> None:
    """A trainer with these options, as another package would add it."""
    info = TrainerInfo(name, name, True, "#000000", ("forward",), (), f"foo:{name}", options)
    monkeypatch.setitem(TRAINERS, name, info)
    monkeypatch.setitem(TRAINER_NAMES, name, name)


@pytest.fixture(autouse=True)
def _foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """These options, and none of dpprof's own trainers, workloads and launchers."""
    tables: tuple[dict[str, Any], ...] = (TRAINERS, WORKLOADS, LAUNCHERS)
    for table in tables:
        for name, info in table.items():
            monkeypatch.setitem(table, name, dataclasses.replace(info, options=None))
    listed(monkeypatch, FOO, FooOptions)
    monkeypatch.setitem(WORKLOADS, "Wide", WorkloadInfo("Wide", "foo:wide", WideOptions))
    monkeypatch.setitem(LAUNCHERS, "far", LauncherInfo("far", "runs it far away", "foo:Far", FarOptions))


def profiled(**values: object) -> ExperimentConfig:
    return parse_experiment(values, MeasuringConfig)


def test_an_experiment_has_the_options_of_its_trainer_and_its_workload() -> None:
    assert profiled().options == {}
    assert profiled(trainer=FOO, beta="0.25").options == {"beta": 0.25, "tree": "binary"}
    both = profiled(trainer=FOO, workload="Wide", tree="flat", width="3")
    assert both.options == {"beta": 0.5, "tree": "flat", "width": 3}
    assert both.options_of(FooOptions) == FooOptions(tree="flat")
    assert both.options_of(WideOptions) == WideOptions(3)
    assert ExperimentConfig(trainer=FOO).options_of(FooOptions) == FooOptions()


def test_an_option_that_nobody_in_the_experiment_has_is_refused() -> None:
    assert refusal(profiled, trainer="flat", beta="0.7") == f"beta: got '0.7', allowed: only with {FOO}"
    assert refusal(profiled, trainer=FOO, width=3) == "width: got '3', allowed: only with Wide"
    assert profiled(trainer="flat", beta="0.5").options == {}, "its default is not asked for"
    assert refusal(profiled, trainer=FOO, tree="round") == "tree: got 'round', allowed: binary, flat"


@pytest.mark.parametrize("how", [MeasuringConfig(), EstimatingConfig(target="T4")])
def test_they_lie_flat_in_the_run_folder(tmp_path: Path, how: Any) -> None:
    config = dataclasses.replace(profiled(trainer=FOO, beta=2), how=how)
    flat = to_flat(config)
    assert (flat["beta"], flat["tree"]) == (2.0, "binary")
    folder = RunFolder(tmp_path)
    folder.write_config(config)
    assert json.loads(folder.config.read_text()) == flat
    assert folder.read_config() == config


def test_in_a_sweep_they_go_to_the_trainers_that_have_them(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"beta": 0.25, "seq_lens": [8], "batch_sizes": [2]}))
    given = {"config": str(path), "trainers": f"standard,{FOO}", "tree": "flat"}
    found = build_grid(given, cuda_available=lambda: False).experiments.values()
    assert {config.trainer: config.options for config in found} == {
        "StandardTrainer": {},
        FOO: {"beta": 0.25, "tree": "flat"},
    }
    said = refusal(build_grid, {**given, "trainers": "standard"}, cuda_available=lambda: False)
    assert said == f"beta: got '0.25', allowed: only with {FOO}"


def test_an_unlisted_trainers_options_are_read_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = to_flat(profiled(trainer=FOO, workload="Wide", beta=0.25))
    monkeypatch.delitem(TRAINERS, FOO)
    monkeypatch.delitem(TRAINER_NAMES, FOO)
    config = from_flat(flat)
    assert (config.trainer, dict(config.options)) == (FOO, {"beta": 0.25, "tree": "binary", "width": 8})
    assert to_flat(config) == flat
    said = refusal(config.resolve, cuda_available=False)
    assert said.startswith(f"trainer: got '{FOO}', allowed: standard (Standard")
    assert refusal(from_flat, flat | {"trainer": "flat"}).startswith("unknown option 'beta'")


def test_a_launchers_options_come_with_the_launcher() -> None:
    values = {"runs_dir": "r", "lr": "1"}
    assert refusal(parse_drive, values | {"queue": "long"}) == "queue: got 'long', allowed: only with far"
    assert parse_drive(values) == (DriveConfig(runs_dir="r"), {"lr": "1"})
    far = DriveConfig(launcher="far", options={"queue": "long"})
    assert take(FarOptions, far.options) == (FarOptions("long"), {})


@pytest.mark.parametrize("name", ["beta", "lr", "runs_dir"])
@pytest.mark.filterwarnings("always")
def test_one_setting_of_two_trainers_is_one_option_and_another_of_its_name_is_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    listed(monkeypatch, "DPBarTrainer", FooOptions)
    assert training_options()["beta"].takers == (FOO, "DPBarTrainer")
    other = dataclasses.make_dataclass("Other", [(name, int, setting(1, "Another."))], frozen=True)
    listed(monkeypatch, "DPBarTrainer", other)
    with pytest.warns(UserWarning, match=f"the option {name} of DPBarTrainer is left out: the name is taken"):
        found = training_options()
    assert set(found) == {"beta", "tree", "width"}
    assert found["beta"].takers == (FOO,)
    with pytest.warns(UserWarning, match="is left out"):
        assert profiled(trainer="DPBarTrainer").options == {}


@pytest.mark.parametrize(
    ("command", "own"), [("profile", ["beta", "tree", "width", "queue"]), ("test", ["queue"])]
)
def test_help_has_them_last_with_their_owners_name(command: str, own: list[str]) -> None:
    assert [option.field.name for option in COMMANDS[command].own_options] == own
    assert not {"beta", "tree", "width", "queue"} & {field.name for field in COMMANDS[command].settings}

    @click.command(cls=GroupedOptions, params=options_of(command))
    def made(**options: str | None) -> None: ...

    asked = "--help-all" if command == "profile" else "--help"
    text = " ".join(CliRunner().invoke(made, [asked]).output.split())
    expected = {
        "beta": f"Only with {FOO}: --beta X Weight of the past. [default: 0.5]",
        "tree": "--tree binary|flat Shape of the tree. [default: binary]",
        "width": "Only with Wide: --width N Features. [default: 8]",
        "queue": "Only with far: --queue TEXT Where jobs wait. [default: short]",
    }
    assert " ".join([*(expected[name] for name in own), "Help: --help Show this message and exit."]) in text


def test_what_a_command_leaves_out_it_would_otherwise_take() -> None:
    for takes in COMMANDS.values():
        names = [name for cls in takes.classes for name in fields(cls)]
        assert set(takes.without) <= set(names)
        kept = [field.name for field in takes.settings]
        assert kept == [n for n in names if n not in takes.without]
        assert len(set(kept)) == len(kept), "no two settings of one name"


def test_measuring_and_estimating_share_no_setting() -> None:
    measuring, estimating = ({f.name for f in COMMANDS[name].settings} for name in ("sweep", "estimate"))
    assert {"passes", "counters"} <= measuring - estimating
    assert {"target", "savings", "workers"} <= estimating - measuring

"""The MLproject file, its pins, and `mlflow run` itself."""

import os
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from conftest import ROOT, environment, fine, runs_of
from mlflow.projects._project_spec import load_project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from write_derived import API, PARAMETERS, api_table, parameter_table, with_table

from dpprof.cli.main import cli
from dpprof.config.options import COMMANDS


def mlflow_run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`mlflow run` of this project in the current environment, with the store and the runs in the folder."""
    return subprocess.run(
        [sys.executable, "-m", "mlflow", "run", str(ROOT), "--env-manager", "local", *arguments],
        cwd=folder,
        env=environment(folder) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


POINTS: dict[str, Any] = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]


def test_every_command_has_an_entry_point_that_declares_some_of_its_options() -> None:
    assert POINTS.keys() == COMMANDS.keys()
    for command, point in POINTS.items():
        assert point["parameters"].keys() <= {setting.name for setting in COMMANDS[command].settings}
        assert all(parameter == {"default": ""} for parameter in point["parameters"].values())
        passed = (f"--{name} {{{name}}}" for name in point["parameters"])
        assert point["command"] == " ".join([f"python -m dpprof {command} --from-mlproject", *passed])


@pytest.mark.parametrize("command", POINTS)
def test_an_entry_point_refuses_a_name_that_its_command_does_not_have(command: str) -> None:
    """`watch` too, which else hands it to the script."""
    entry_point = load_project(str(ROOT)).get_entry_point(command)
    line = entry_point.compute_command({"runs_dri": "a 'b'", "device": "cpu"}, None)
    ended = CliRunner().invoke(cli, shlex.split(line)[3:])
    assert ended.exit_code == 2
    assert "No such option '--runs_dri'." in ended.output
    assert "--runs_dir" in ended.output.partition("--runs_dri'")[2]


def test_docs_have_every_parameter_and_every_public_name() -> None:
    for page, table in ((PARAMETERS, parameter_table()), (API, api_table())):
        assert with_table(page.read_text(), table) == page.read_text()


def locked() -> dict[str, str]:
    """The exact version of every package by its canonical name, as constraints.txt has them."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_pins_are_the_same_everywhere_and_in_the_ranges() -> None:
    pins = locked()
    assert all(version and "+" not in version for version in pins.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [Requirement(line) for line in project["dependencies"]]
    conda = yaml.safe_load((ROOT / "conda.yaml").read_text())["dependencies"]
    assert conda[-1]["pip"] == [f"{needed.name}=={pins[needed.name]}" for needed in ranges]
    assert "python=3.11.7" in conda
    extras = project["optional-dependencies"]
    assert set(extras["models"]) < set(extras["test"])
    tested = [Requirement(line) for line in extras["test"]]
    wrong = [
        str(needed)
        for needed in ranges + tested
        if pins[canonicalize_name(needed.name)] not in needed.specifier
    ]
    assert wrong == []


def test_everything_that_a_pinned_package_needs_is_pinned() -> None:
    pins = locked()
    found = {dist.metadata["Name"]: dist for dist in distributions()}
    installed = [dist for name, dist in found.items() if pins.get(canonicalize_name(name)) == dist.version]
    needed = {Requirement(line) for dist in installed for line in dist.requires or []}
    names = {canonicalize_name(n.name) for n in needed if not n.marker or n.marker.evaluate({"extra": ""})}
    assert names - set(pins) <= {"setuptools"}


def test_profile_logs_to_dpprof_and_the_run_that_mlflow_made_points_there(tmp_path: Path) -> None:
    """Undeclared options reach it, with blanks and quotes; the run has what is declared or given, no more."""
    given = {"passes": "clean", "measured_steps": "2", "model_size": "tiny", "seq_len": "16", "lr": "1e-2"}
    kept = tmp_path / """it's "the" runs"""
    given |= {"launcher": "in_process", "runs_dir": str(kept)}
    parameters = [part for name, value in given.items() for part in ("-P", f"{name}={value}")]
    fine(mlflow_run(tmp_path, "-e", "profile", *parameters))
    assert len([*kept.glob("*/StandardTrainer_tiny_bs4_seq16/record.json")]) == 1
    runs = runs_of(tmp_path)
    run, left = runs["StandardTrainer_tiny_bs4_seq16"], runs["standard b4 s16 tiny is in dpprof"]
    assert run.info.experiment_id != left.info.experiment_id == "0"
    assert run.info.status == left.info.status == "FINISHED"
    assert run.info.run_name == "standard b4 s16 tiny"
    assert run.data.tags["mlflow.user"] == left.data.tags["mlflow.user"]
    assert run.info.run_id in left.data.tags["mlflow.note.content"]
    assert left.data.params.keys() == POINTS["profile"]["parameters"].keys() | given.keys()


def test_watch_logs_a_script_with_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys, torch\n"
        "assert sys.argv[1:] == ['a b', 'c'], sys.argv\n"
        "weight = torch.nn.Parameter(torch.ones(4))\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "while True:\n"
        "    weight.sum().backward()\n"
        "    optimizer.step()\n"
    )
    given = {"script": script, "arguments": "'a b' c", "name": "mine", "end": "true", "measured_steps": 2}
    given["runs_dir"] = tmp_path / "runs"
    parameters = [part for name, value in given.items() for part in ("-P", f"{name}={value}")]
    fine(mlflow_run(tmp_path, "-e", "watch", *parameters))
    runs = runs_of(tmp_path)
    run = next(run for name, run in runs.items() if name.startswith("OwnLoop_mine"))
    assert run.info.status == "FINISHED"
    assert run.data.params["measured_steps"] == "2"
    assert any(name.endswith("is in dpprof") for name in runs)


def test_a_bad_option_ends_the_run_failed(tmp_path: Path) -> None:
    bad = ["-P", "batch_sizes=2,0", "-P", f"runs_dir={tmp_path / 'runs'}"]
    ended = mlflow_run(tmp_path, "-e", "sweep", *bad)
    assert ended.returncode != 0
    assert "batch_size: got '0', allowed: a whole number of at least 1" in ended.stderr
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FAILED"
    assert not list((tmp_path / "runs").glob("*"))

"""The MLproject file, its pins, and `mlflow run` itself."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, environment, runs_of
from write_derived import mlproject, readme


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


def test_file_is_what_the_configuration_says() -> None:
    assert (ROOT / "MLproject").read_text() == mlproject()


def test_readme_has_every_parameter() -> None:
    text = (ROOT / "README.md").read_text()
    assert readme(text) == text


def test_conda_and_pyproject_pin_the_same() -> None:
    conda = yaml.safe_load((ROOT / "conda.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = conda["dependencies"][-1]["pip"]
    assert pins == project["dependencies"]
    assert all("==" in pin for pin in pins)
    assert "python=3.11.7" in conda["dependencies"]


def test_profile_logs_to_dpprof_and_the_run_that_mlflow_made_points_there(tmp_path: Path) -> None:
    quick = ["passes=clean", "measured_steps=2", "seq_len=16", "lr=1e-2", f"runs_dir={tmp_path / 'runs'}"]
    parameters = [part for pair in quick for part in ("-P", pair)]
    ended = mlflow_run(tmp_path, "-e", "profile", *parameters)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = runs_of(tmp_path)
    run, left = runs["StandardTrainer_tiny_bs4_seq16"], runs["standard b4 s16 tiny is in dpprof"]
    assert run.info.experiment_id != left.info.experiment_id == "0"
    assert run.info.status == left.info.status == "FINISHED"
    assert run.info.run_name == "standard b4 s16 tiny"
    assert run.data.tags["mlflow.user"] == left.data.tags["mlflow.user"]
    assert run.info.run_id in left.data.tags["mlflow.note.content"]


def test_profile_goes_into_the_run_of_an_experiment_that_was_named(tmp_path: Path) -> None:
    quick = ["passes=clean", "measured_steps=2", "seq_len=16", "lr=1e-2", f"runs_dir={tmp_path / 'runs'}"]
    parameters = [part for pair in quick for part in ("-P", pair)]
    ended = mlflow_run(tmp_path, "-e", "profile", "--experiment-name", "mine", *parameters)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FINISHED"
    assert run.data.params["device"] == "auto"
    assert run.data.params["resolved_device"] == "cpu"
    assert run.data.params["lr"] == "1e-2"
    assert run.data.params["resolved_vocab_size"] == "1000"
    assert run.data.metrics["latency/step_ms_median"] > 0
    assert run.data.tags["dpprof.trainer"] == "StandardTrainer"


@pytest.mark.parametrize("entry", ["profile", "sweep"])
def test_a_bad_option_ends_the_run_failed(tmp_path: Path, entry: str) -> None:
    bad = "batch_size=0" if entry == "profile" else "batch_sizes=2,0"
    ended = mlflow_run(tmp_path, "-e", entry, "-P", bad, "-P", f"runs_dir={tmp_path / 'runs'}")
    assert ended.returncode != 0
    assert "batch_size: got '0', allowed: a whole number of at least 1" in ended.stderr
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FAILED"
    assert not list((tmp_path / "runs").glob("*"))

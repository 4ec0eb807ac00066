"""`dpprof snippet`: scripts that run as written, in processes of their own, and files that are no plan."""

import io
import json
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Ended, Run, environment, errors_of, fine, run_python
from example_plans import BATCH, STEPS, of_every_trainer

from dpprof.vocabulary.trainers import TRAINERS

WRITTEN = [info.short_name for info in TRAINERS.values() if info.is_private]
(PLANNED,) = {row["epsilon"] for row in of_every_trainer()["options"] if row["logical_batch"] == BATCH}


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Ended:
    """`python train.py ARGUMENTS` in this process, which saves its start."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    output = io.StringIO()
    with redirect_stdout(output):
        runpy.run_path("train.py", run_name="__main__")
    return subprocess.CompletedProcess(arguments, 0, output.getvalue(), "")


def epsilon_of(ended: Ended, steps: int) -> float:
    """What the script says that it has spent."""
    said_so = r"^epsilon ([\d.]+) at delta 0.0001 after (\d+) of 4 steps$"
    said = re.search(said_so, fine(ended).stdout, re.MULTILINE)
    assert said is not None, ended.stdout
    assert int(said[2]) == steps
    return float(said[1])


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(of_every_trainer()))
    return path


@pytest.mark.usefixtures("plan_file")
@pytest.mark.parametrize("trainer", WRITTEN)
def test_a_script_runs_as_written_and_spends_what_was_planned(
    called: Run, tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--trainer", trainer, "--logical-batch", str(BATCH), "--output", "train.py")
    ended = called("snippet", "plan.json", *arguments)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "replace make_model and make_dataset" in ended.stderr
    monkeypatch.chdir(tmp_path)
    if trainer == "flat":
        ran = run_python(tmp_path, environment(tmp_path) | {"OMP_NUM_THREADS": "1"}, "train.py")
    else:
        ran = run_here(monkeypatch)
    assert epsilon_of(ran, STEPS) == pytest.approx(PLANNED, abs=0.01)
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert checkpoint["step"] == STEPS
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.usefixtures("plan_file")
@pytest.mark.parametrize("trainer", ["flat", "bk"])
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not(
    called: Run, tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one checkpoint on, the same steps in one go and in two give the same weights to the bit."""
    called("snippet", ".", "--trainer", trainer, "--logical-batch", str(BATCH), "--output", "train.py")
    monkeypatch.chdir(tmp_path)
    short = run_here(monkeypatch, "--steps", "1", "--checkpoint-every", "3")
    spent = epsilon_of(short, 1)
    assert spent < PLANNED - 0.5
    Path("whole.pt").write_bytes(Path("checkpoint.pt").read_bytes())
    assert epsilon_of(run_here(monkeypatch, "--steps", "2"), 2) > spent
    ended = run_here(monkeypatch)
    assert "goes on from checkpoint.pt, after step 2\n" in ended.stdout
    assert epsilon_of(ended, STEPS) == pytest.approx(PLANNED, abs=0.01)

    epsilon_of(run_here(monkeypatch, "--checkpoint", "whole.pt"), STEPS)
    found, expected = (torch.load(name) for name in ("checkpoint.pt", "whole.pt"))
    assert found["accountant"] == expected["accountant"]
    for name, weight in expected["model"].items():
        assert torch.equal(found["model"][name], weight), name
    again = run_here(monkeypatch)
    assert epsilon_of(again, STEPS) == pytest.approx(PLANNED, abs=0.01)
    assert "step 5" not in again.stdout


def test_the_recommended_row_is_printed_where_no_file_is_named(called: Run, plan_file: Path) -> None:
    ended = fine(called("snippet", str(plan_file)))
    assert ended.stdout.startswith('"""Training with differential privacy')
    assert "LOGICAL_BATCH = 64 " in ended.stdout
    assert "DPBookKeepingTrainer" in ended.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (None, (), "plan: plan.json cannot be read: No such file or directory"),
        ({"experiments": {}}, (), "experiments.DPBookKeepingTrainer is missing"),
        ({"noises": []}, (), "noises has no accountant for logical batch 64"),
        ({}, ("--trainer", "nosuch"), "trainer: got 'nosuch', allowed: one of the plan's: flat, ghost"),
        ({}, ("--logical-batch", "65"), "logical_batch: got '65', allowed: with bk 32, 64"),
    ],
)
def test_what_has_no_script_is_refused_by_name(
    called: Run, tmp_path: Path, content: dict[str, Any] | None, arguments: tuple[str, ...], said: str
) -> None:
    """As a file that is no plan is, which other commands take too."""
    if content is not None:
        (tmp_path / "plan.json").write_text(json.dumps(of_every_trainer() | content))
    assert said in errors_of(called("snippet", "plan.json", *arguments, "--output", "train.py"))
    assert not (tmp_path / "train.py").exists()


def test_noise_that_no_accountant_takes_is_one_line(called: Run, plan_file: Path) -> None:
    plan = of_every_trainer()
    for row in (plan["recommended"], *plan["options"]):
        row["noise_multiplier"] = 1e-300
    plan_file.write_text(json.dumps(plan))
    ended = called("snippet", "plan.json")
    assert ended.returncode == 1
    said = "dpprof: PRV cannot account noise multiplier 1e-300: its privacy losses reach inf\n"
    assert ended.stderr == said

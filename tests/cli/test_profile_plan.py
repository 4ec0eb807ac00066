"""`--plan` of profile, verify and advise: the recommended row, measured beside its plan."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from conftest import Ended, call_dpprof, lay_out_store, measure_here
from covering import product

from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder

MODEL = ("--model-size", "tiny", "--seq-len", "16", "--device", "cpu")
ASKED = ("--dataset-size", "20000", "--logical-batches", "64", "--trainers", "flat,bk")
SHORT = ("--passes", "clean,memory,ledger", "--warmup-steps", "1", "--measured-steps", "3")


@cache
def place() -> Path:
    """A folder with a sweep that was measured, and a plan that rests on it."""
    folder = Path(mkdtemp())
    lay_out_store(folder)
    sizes = ("--model-sizes", "tiny", "--seq-lens", "16", "--batch-sizes", "2,4", "--device", "cpu")
    short = ("--trainers", "flat,bk", "--passes", "clean", "--measured-steps", "3", "--sweep-name", "mine")
    assert measure_here(folder, "sweep", *sizes, *short).returncode == 0
    planned = measure_here(folder, "plan", *MODEL, *ASKED, "--device-memory-gib", "0.005", "--workers", "1")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    return folder


def plan() -> Path:
    (found,) = place().glob("runs/plan-*")
    return found


def recommended() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan() / "plan.json").read_text())["recommended"]
    return found


def profiled(*more: str) -> tuple[Ended, Result]:
    before = set(place().glob("runs/profile-*"))
    ended = measure_here(place(), "profile", "--plan", str(plan()), *SHORT, *more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = set(place().glob("runs/profile-*")) - before
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    return ended, read_result(RunFolder(run))


@cache
def measured() -> tuple[Ended, Result]:
    return profiled()


def test_the_recommended_row_is_what_is_measured() -> None:
    _, result = measured()
    row = recommended()
    assert result.config.trainer == row["trainer"]
    assert result.config.batch_size == row["physical_batch"]
    assert result.config.accumulation_steps == max(1, round(row["physical_batches"]))
    assert result.config.noise_multiplier == row["noise_multiplier"]
    assert result.config.accumulation_steps > 2  # more than were estimated


def test_its_peak_is_the_plans_to_the_byte() -> None:
    _, result = measured()
    assert result.record is not None
    assert recommended()["predicted"]["peak_bytes"] == result.record.memory.peak_allocated
    assert read_result(RunFolder(place() / recommended()["predicted"]["estimate"])).config.is_estimate


def logged(result: Result) -> Any:
    """Its run in MLflow."""
    from mlflow import MlflowClient

    run_id = json.loads(result.folder.mlflow.read_text())["run_id"]
    return MlflowClient(f"sqlite:///{place()}/mlflow.db").get_run(run_id)


def test_the_terminal_and_mlflow_have_both() -> None:
    ended, result = measured()
    assert f"Beside {plan().name}" in ended.stdout
    assert "+0 bytes" in ended.stdout
    run = logged(result)
    metrics = run.data.metrics
    predicted = recommended()["predicted"]
    assert metrics["plan/peak_mib"] == pytest.approx(predicted["peak_bytes"] / 2**20)
    assert metrics["plan/step_ms_least"] == pytest.approx(1e3 * predicted["step_s_least"])
    assert run.data.tags["dpprof.measured_for"] == plan().name
    shown = call_dpprof(place(), "show", str(result.folder.path))
    assert f"Beside {plan().name}" in shown.stdout


def test_what_differs_from_the_plan_is_measured_but_not_compared() -> None:
    """A default value that is given counts too."""
    ended, result = profiled("--batch-size", "3", "--trainer", "StandardTrainer", "--accumulation-steps", "1")
    assert (result.config.trainer, result.config.batch_size) == ("StandardTrainer", 3)
    assert result.predicted is None
    told = "".join((ended.stdout + ended.stderr).split())
    assert "notsetbesidetheplan:" in told
    assert "batch_sizeis3" in told
    assert "trainerisStandardTrainer" in told


def test_verify_takes_the_trainer_and_the_model() -> None:
    ended = measure_here(place(), "verify", "--plan", str(plan() / "plan.json"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "verifying 1 trainer on cpu: tiny, 4 samples of 16 tokens" in ended.stdout + ended.stderr
    (folder,) = place().glob("runs/verify-*")
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    config = read_result(RunFolder(run)).config
    assert (config.trainer, config.noise_multiplier) == (
        recommended()["trainer"],
        recommended()["noise_multiplier"],
    )


def test_advise_takes_the_row_and_the_device() -> None:
    ended = measure_here(place(), "advise", "--plan", str(plan()), "--trainers", "bk", "--workers", "1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = place().glob("runs/advice-*")
    text = (folder / "advice.md").read_text()
    assert "It fits" in text


NO_PLANS = [
    (None, "plan: plan.json cannot be read: No such file"),
    ("{", "plan: plan.json cannot be read: it is no valid JSON"),
    ("[]", "plan: plan.json cannot be used: it "),
    ('{"recommended": null}', "plan: got 'plan.json', allowed: a plan that recommends a row"),
    ('{"recommended": {}}', "plan: plan.json cannot be used: "),
    ('{"recommended": {"experiment": {"trainer": "flat", "x": 1}, "predicted": {"plan": ""}}}', "'x'"),
]


@pytest.mark.parametrize(("command", "case"), product(["profile", "verify", "advise"], NO_PLANS))
def test_what_is_no_plan_is_refused(command: str, case: tuple[str | None, str], tmp_path: Path) -> None:
    content, said = case
    lay_out_store(tmp_path)
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    ended = call_dpprof(tmp_path, command, "--plan", "plan.json", "--device", "cpu")
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert said in ended.stderr

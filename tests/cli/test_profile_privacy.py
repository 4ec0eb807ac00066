"""`dpprof profile` on a data set of known size: the guarantee in the record, MLflow and the terminal."""

import json
from pathlib import Path

import pytest
from conftest import Run, call_dpprof, fine, measure_here, runs_of

from dpprof.privacy.accounting import epsilon_of
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.record.folder import RunFolder

TINY = ("--device", "cpu", "--model-size", "tiny", "--batch-size", "50", "--seq-len", "8", "--trainer", "bk")
DATA = ("--dataset-size", "50000", "--epochs", "3", "--warmup-steps", "3", "--measured-steps", "2")
FIXED = "the measured batches have a fixed size"


def folder_of(place: Path) -> RunFolder:
    (path,) = place.glob("runs/*/*/record.json")
    return RunFolder(path.parent)


def test_the_guarantee_of_a_real_run(tmp_path: Path) -> None:
    ended = fine(measure_here(tmp_path, "profile", *TINY, *DATA, "--passes", "clean,ledger"))
    told = epsilon_of(1.0, PrivateSteps(sample_rate=0.001, steps=3000, delta=1e-6))
    assert "; epsilon 0.3" in ended.stdout
    assert "at delta 1e-06 if Poisson-sampled" in ended.stdout
    folder = folder_of(tmp_path)
    kept = json.loads(folder.record.read_text())["privacy"]
    assert (kept["epsilon"], kept["accountant"]) == (pytest.approx(told.epsilon), told.accountant)
    (run,) = runs_of(tmp_path).values()
    expected = {
        "privacy/epsilon": told.epsilon,
        "privacy/delta": 1e-6,
        "privacy/noise_multiplier": 1.0,
        "privacy/sample_rate": 0.001,
        "privacy/steps": 3000,
    }
    logged = {name: value for name, value in run.data.metrics.items() if name.startswith("privacy/")}
    assert logged == pytest.approx(expected)
    params = {name: float(run.data.params[name]) for name in expected}
    assert params == pytest.approx(expected)
    assert run.data.params["privacy/steps"] == "3000"
    assert (run.data.params["dataset_size"], run.data.params["epochs"]) == ("50000", "3.0")
    assert FIXED in run.data.tags["dpprof.privacy"]
    shown = call_dpprof(tmp_path, "show", str(folder.path)).stdout
    for text in (shown, folder.timeline_page.read_text()):
        words = " ".join(text.split())
        assert "privacy of the whole training" in words
        assert "3,000 steps at sample rate 0.001 with noise multiplier 1" in words
        assert FIXED in words


def test_poisson_sampled_batches_need_no_excuse(called: Run, tmp_path: Path) -> None:
    sampled = ("--poisson-sampling", "true", "--launcher", "in_process", "--passes", "clean")
    ended = fine(called("profile", *TINY, *DATA, *sampled))
    assert "if Poisson-sampled" not in ended.stdout
    record = folder_of(tmp_path).read_record()
    assert record is not None
    assert record.privacy is not None
    assert record.privacy.weakened == []


def test_a_later_pass_that_fails_does_not_take_it_away(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("example_workloads._models_built", 0)
    arguments = ["--workload", "example_workloads:fails_in_memory_pass", "--trainer", "flat"]
    arguments += ["--batch-size", "4", "--seq-len", "8", "--dataset-size", "1000"]
    ended = called("profile", *arguments, "--passes", "clean,memory", "--launcher", "in_process")
    assert "memory pass failed" in ended.stdout
    assert "; epsilon " in ended.stdout
    record = folder_of(tmp_path).read_record()
    assert record is not None
    assert record.failed_passes
    assert record.privacy is not None
    assert record.privacy.epsilon is not None

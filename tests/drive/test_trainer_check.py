"""What the check of every trainer makes of its results."""

from pathlib import Path

import pytest
from conftest import call_dpprof, runs_of
from example_results import result

from dpprof.cli import test as command
from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.trainer_check import TrainerCheck, outcomes
from dpprof.errors import ExperimentsFailed, Interrupted
from dpprof.figures.results import Result
from dpprof.record.record import GradientCheck
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.trainers import TRAINERS

RIGHT = GradientCheck(relative_error_float64=1e-16, relative_error_float32=1e-7)
WRONG = GradientCheck(relative_error_float64=0.5, relative_error_float32=0.5)


def check_of(tmp_path: Path, *results: Result) -> TrainerCheck:
    experiments = {one.name: one.config for one in results}
    check = TrainerCheck("t", DriveConfig(runs_dir=str(tmp_path)), LocalLauncher(), experiments)
    check.folder.path.mkdir()
    check.results += results
    return check


def test_a_trainer_with_a_wrong_gradient_fails_the_check(tmp_path: Path) -> None:
    right = result("StandardTrainer", step_s=0.002, peak_mib=3.0, check=RIGHT)
    wrong = result("DPSGDTrainer", step_s=0.004, peak_mib=5.0, check=WRONG)
    check = check_of(tmp_path, right, wrong)
    assert {trainer: passed for trainer, (passed, _) in check.verdicts.items()} == {
        "StandardTrainer": True,
        "DPSGDTrainer": False,
    }
    assert check.has_failed()
    with pytest.raises(ExperimentsFailed, match="1 of 2 trainers failed: DPSGDTrainer"):
        check.raise_for_end()
    found = outcomes(check.results)
    assert found["test/DPSGDTrainer/passed"] == 0
    assert found["test/StandardTrainer/step_ms_median"] == pytest.approx(2)
    summary = check.summarize()
    assert summary.figures == found


def test_without_a_check_no_trainer_passes(tmp_path: Path) -> None:
    check = check_of(tmp_path, result("StandardTrainer", step_s=0.002))
    assert check.failed_trainers == ["StandardTrainer"]


def test_a_check_that_is_stopped_judges_nobody(tmp_path: Path) -> None:
    check = check_of(tmp_path, result("StandardTrainer", step_s=0.002, check=WRONG))
    check.stop.request()
    assert check.summarize().figures == {}
    with pytest.raises(Interrupted) as stopped:
        check.raise_for_end()
    assert "resume" not in str(stopped.value), "a test cannot be resumed"


def test_the_command_says_which_trainers_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: TRAINERS[name] for name in ("StandardTrainer", "DPGhostClippingTrainer")}
    monkeypatch.setattr(command, "TRAINERS", few)
    monkeypatch.setitem(LAUNCHERS, "local", LAUNCHERS["in_process"])
    ended = call_dpprof(tmp_path, "test", "--device", "cpu")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for trainer in few:
        assert f"[TEST OK] {trainer} passed local test." in ended.stdout
    (parent,) = (run for run in runs_of(tmp_path).values() if run.data.tags.get("dpprof.kind") == "test")
    assert parent.data.metrics["test/DPGhostClippingTrainer/passed"] == 1
    assert "test/DPGhostClippingTrainer/step_ms_median" in parent.data.metrics

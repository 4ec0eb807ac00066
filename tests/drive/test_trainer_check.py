"""What the check of every trainer makes of its results."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import call_dpprof, fine, measure_here, runs_of
from example_results import result

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import TrainerCheck
from dpprof.errors import ExperimentsFailed, Interrupted, Undecided
from dpprof.pages.sweep_reports import write_sweep_reports
from dpprof.record.figures.results import Result
from dpprof.record.figures.verdicts import FAIL, PASS
from dpprof.record.record import VerifyCheck, VerifyResult
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.trainers import TRAINER_GROUPS, TRAINERS

VERIFY = ("verify", "--workload", "example_workloads:mlp", "--device", "cpu")
RIGHT = VerifyResult([VerifyCheck("gradient_float64", PASS, "off by 1e-16", 1e-16, 1e-9)])
WRONG = VerifyResult([VerifyCheck("gradient_float64", FAIL, "no sample is clipped", 0.5, 1e-9)])
UNKNOWN = VerifyResult(doubt="every sample's gradient is zero")


def check_of(tmp_path: Path, *results: Result) -> TrainerCheck:
    experiments = {one.name: one.config for one in results}
    drive = DriveConfig(runs_dir=str(tmp_path))
    check = TrainerCheck("t", drive, LocalLauncher(), experiments, write_reports=write_sweep_reports)
    check.folder.path.mkdir(exist_ok=True)
    check.results += results
    return check


def test_a_trainer_with_a_wrong_gradient_fails_the_check(tmp_path: Path) -> None:
    right = result("StandardTrainer", step_s=0.002, peak_mib=3.0, verified=RIGHT)
    wrong = result("DPSGDTrainer", step_s=0.004, peak_mib=5.0, verified=WRONG)
    check = check_of(tmp_path, right, wrong)
    passed = {trainer: passed for trainer, (passed, _) in check.verdicts.items()}
    assert passed == {"StandardTrainer": True, "DPSGDTrainer": False}
    assert check.has_failed()
    with pytest.raises(ExperimentsFailed, match="1 of 2 trainers failed: DPSGDTrainer"):
        check.end()
    found = check.summarize().figures
    assert found["test/DPSGDTrainer/passed"] == 0
    assert found["test/StandardTrainer/step_ms_median"] == pytest.approx(2)


def test_a_trainer_that_cannot_be_verified_is_undecided(tmp_path: Path) -> None:
    unknown = result("DPSGDTrainer", step_s=0.002, verified=UNKNOWN)
    with pytest.raises(Undecided, match="1 of 1 trainers could not be verified: DPSGDTrainer"):
        check_of(tmp_path, unknown).end()
    wrong = result("DPGhostClippingTrainer", step_s=0.002, verified=WRONG)
    with pytest.raises(ExperimentsFailed, match="1 of 2 trainers failed: DPGhostClippingTrainer"):
        check_of(tmp_path, unknown, wrong).end()


def test_without_a_check_no_trainer_passes(tmp_path: Path) -> None:
    check = check_of(tmp_path, result("StandardTrainer", step_s=0.002))
    assert not check.verdicts["StandardTrainer"][0]


def test_a_check_that_is_stopped_judges_nobody(tmp_path: Path) -> None:
    check = check_of(tmp_path, result("StandardTrainer", step_s=0.002, verified=WRONG))
    check.stop.request()
    assert check.summarize().figures == {}
    with pytest.raises(Interrupted) as stopped:
        check.end()
    assert "resume" not in str(stopped.value), "a test cannot be resumed"


def test_the_command_says_which_trainers_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("StandardTrainer", "DPGhostClippingTrainer")
    monkeypatch.setitem(TRAINER_GROUPS, "all", few)
    monkeypatch.setitem(LAUNCHERS, "local", LAUNCHERS["in_process"])
    ended = fine(call_dpprof(tmp_path, "test", "--device", "cpu"))
    for trainer in few:
        assert f"[TEST OK] {trainer} passed local test." in ended.stdout
    (parent,) = (run for run in runs_of(tmp_path).values() if run.data.tags.get("dpprof.kind") == "test")
    assert parent.data.metrics["test/DPGhostClippingTrainer/passed"] == 1
    assert "test/DPGhostClippingTrainer/step_ms_median" in parent.data.metrics


def test_verify_shows_checks_by_trainer_and_what_is_found(tmp_path: Path) -> None:
    ended = fine(measure_here(tmp_path, *VERIFY, "--trainers", "flat,bk"))
    rows = {words[0]: words[1:] for line in ended.stdout.splitlines() if (words := line.split())}
    assert rows["check"] == ["flat", "bk"]
    assert rows["sensitivity_nan"] == ["warning", "pass"]
    assert "warning (flat): sensitivity_nan: a sample with a NaN loss is summed" in ended.stdout
    runs = runs_of(tmp_path)
    (parent,) = (run for run in runs.values() if run.data.tags.get("dpprof.kind") == "verify")
    assert parent.data.metrics["verify/DPSGDTrainer/passed"] == 1
    (flat,) = (run for run in runs.values() if run.data.tags.get("dpprof.trainer") == "DPSGDTrainer")
    assert flat.data.metrics["verify/failed"] == 0
    assert flat.data.metrics["verify/warnings"] == 2
    assert flat.data.metrics["verify/sensitivity_huge"] <= 1.003
    assert flat.data.tags["dpprof.verified"] == "pass"
    (page,) = tmp_path.glob("runs/verify-*/DPSGDTrainer_*/verify.html")
    for name in ("gradient_float64", "noise_deviation", "max_grad_norm"):
        assert name in page.read_text()


def test_a_failed_trainer_ends_verify_with_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = replace(TRAINERS["DPSGDTrainer"], target="example_faulty_trainers:LeaksOneSample")
    monkeypatch.setitem(TRAINERS, "DPSGDTrainer", info)
    ended = measure_here(tmp_path, *VERIFY, "--trainers", "flat")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "fail (flat): gradient_float64: the gradient of sample" in ended.stdout
    assert ended.stderr.endswith("1 of 1 trainers failed: DPSGDTrainer\n")

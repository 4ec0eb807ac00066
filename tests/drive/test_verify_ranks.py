"""Verify across ranks: what is right passes, and planted faults are found."""

import os
from pathlib import Path

import pytest
from conftest import ROOT
from example_config import experiment

from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.drive.stop import Stop
from dpprof.record.figures.verdicts import FAIL
from dpprof.record.folder import RunFolder
from dpprof.record.record import VerifyCheck
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

GHOST, FLAT, BK = "DPGhostClippingTrainer", "DPSGDTrainer", "DPBookKeepingTrainer"


def checks(
    place: Path, monkeypatch: pytest.MonkeyPatch, trainer: str, way: str, workload: str
) -> dict[str, VerifyCheck]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    config = experiment(
        trainer=trainer,
        parallel=way,
        world_size=2,
        workload=workload,
        model_size="tiny",
        vocab_size=64,
        batch_size=3,
        seq_len=8,
        device="cpu",
        warmup_steps=1,
        measured_steps=1,
        passes="clean,verify",
    ).resolve(cuda_available=False)
    result = drive_experiment(
        config, RunFolder(place / "run"), LocalLauncher(), 300, lambda line: None, Stop()
    )
    assert result.failure is None
    assert result.record is not None
    assert result.record.verify is not None
    assert result.record.verify.doubt is None
    return {check.name: check for check in result.record.verify.checks}


def failed(found: dict[str, VerifyCheck]) -> set[str]:
    return {name for name, check in found.items() if check.outcome == FAIL}


@pytest.mark.parametrize(
    ("trainer", "way"), [(BK, "fsdp2"), pytest.param(FLAT, "ddp", marks=pytest.mark.exhaustive)]
)
def test_what_is_right_passes(
    trainer: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checks(tmp_path, monkeypatch, trainer, way, BUILT_IN_WORKLOAD)
    assert {"gradient_float64", "gradient_float64_accumulated", "noise_deviation"} <= found.keys()
    assert not failed(found)


def test_noise_on_every_rank_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = "example_faulty_ranks:noise_on_every_rank"
    found = checks(tmp_path, monkeypatch, FLAT, "ddp", workload)
    assert "noise_deviation" in failed(found)
    assert "as if it were added twice" in found["noise_deviation"].said


def test_norms_summed_over_ranks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = "example_faulty_ranks:norms_over_ranks"
    found = checks(tmp_path, monkeypatch, GHOST, "fsdp2", workload)
    assert {"gradient_float64", "gradient_float32"} <= failed(found)


def test_the_same_noise_on_every_rank_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = "example_faulty_ranks:same_noise_on_every_rank"
    found = checks(tmp_path, monkeypatch, BK, "fsdp2", workload)
    assert "noise_coordinates" in failed(found)

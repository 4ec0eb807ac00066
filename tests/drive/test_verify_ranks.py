"""Verify across ranks: what is right passes, and planted faults are found."""

from pathlib import Path
from typing import Any

import pytest
from conftest import TESTED
from covering import sampled
from example_config import experiment
from example_runs import known

from dpprof.drive.jobs import Runner
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.record.figures.verdicts import FAIL
from dpprof.record.folder import RunFolder
from dpprof.record.record import VerifyCheck
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

GHOST, FLAT, BK = "DPGhostClippingTrainer", "DPSGDTrainer", "DPBookKeepingTrainer"
SMALL: dict[str, Any] = {"model_size": "tiny", "vocab_size": 64, "batch_size": 3, "seq_len": 8}
SMALL |= {"device": "cpu", "warmup_steps": 1, "measured_steps": 1, "passes": "clean,verify"}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTED)


def checks(place: Path, trainer: str, way: str, workload: str) -> dict[str, VerifyCheck]:
    given: dict[str, Any] = {"trainer": trainer, "parallel": way, "world_size": 2, "workload": workload}
    config = experiment(**SMALL, **given).resolve(cuda_available=False)
    result = drive_experiment(config, RunFolder(place / "run"), Runner(LocalLauncher(), 300, print))
    assert result.failure is None
    verified = known(known(result.record).verify)
    assert verified.doubt is None
    return {check.name: check for check in verified.checks}


def failed(found: dict[str, VerifyCheck]) -> set[str]:
    return {name for name, check in found.items() if check.outcome == FAIL}


WAYS = [(BK, "fsdp2"), (FLAT, "ddp")]


@pytest.mark.parametrize(("trainer", "way"), sampled(WAYS, WAYS[:1]))
def test_what_is_right_passes(trainer: str, way: str, tmp_path: Path) -> None:
    found = checks(tmp_path, trainer, way, BUILT_IN_WORKLOAD)
    assert {"gradient_float64", "gradient_float64_accumulated", "noise_deviation"} <= found.keys()
    assert not failed(found)


FAULTS = [
    (FLAT, "ddp", "noise_on_every_rank", {"noise_deviation"}, "as if it were added twice"),
    (GHOST, "fsdp2", "norms_over_ranks", {"gradient_float64", "gradient_float32"}, ""),
    (BK, "fsdp2", "same_noise_on_every_rank", {"noise_coordinates"}, ""),
]


@pytest.mark.parametrize(("trainer", "way", "fault", "finds", "says"), sampled(FAULTS, FAULTS[:2]))
def test_a_planted_fault_is_found(
    trainer: str, way: str, fault: str, finds: set[str], says: str, tmp_path: Path
) -> None:
    found = checks(tmp_path, trainer, way, f"example_faulty_ranks:{fault}")
    assert finds <= failed(found)
    assert all(says in found[name].said for name in finds)

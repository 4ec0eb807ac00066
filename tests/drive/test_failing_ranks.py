"""An experiment of several ranks, one of which fails: the failure names it, and nothing is left."""

import os
import time
from pathlib import Path

import psutil
import pytest
from conftest import ROOT
from example_config import experiment

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.drive.stop import Stop
from dpprof.figures.results import FAILED, FINISHED, Result
from dpprof.process import JOB
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import TRAINERS

GHOST, BK = "DPGhostClippingTrainer", "DPBookKeepingTrainer"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))


def failing(how: str, phase: str, *, rank: int = 1, step: int = 2, **settings: object) -> ExperimentConfig:
    options = f"how={how},phase={phase},rank={rank},step={step}"
    given = {"trainer": GHOST, "parallel": "ddp", "passes": "clean", "measured_steps": 2} | settings
    return experiment(
        workload="example_failing_ranks:fails",
        workload_options=options,
        world_size=2,
        batch_size=2,
        seq_len=1,
        device="cpu",
        **given,
    ).resolve(cuda_available=False)


def driven(config: ExperimentConfig, place: Path, timeout_s: float = 120) -> Result:
    result = drive_experiment(
        config, RunFolder(place / "run"), LocalLauncher(), timeout_s, lambda line: None, Stop()
    )
    assert not [p.pid for p in psutil.Process().children(recursive=True) if JOB in _environment(p)]
    return result


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def message(result: Result) -> str:
    assert result.failure is not None
    return result.failure.message


@pytest.mark.parametrize("phase", [*TRAINERS[GHOST].phases, "reduce_gradients"])
def test_a_rank_that_is_killed_is_named(phase: str, tmp_path: Path) -> None:
    began = time.monotonic()
    result = driven(failing("kill", phase), tmp_path)
    assert result.status == FAILED
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rank) == ("killed", 1)
    assert message(result).startswith("rank 1: ended by SIGKILL from outside")
    assert time.monotonic() - began < 60


def test_rank_0_may_be_the_one(tmp_path: Path) -> None:
    result = driven(failing("kill", "backward_norms", rank=0, parallel="fsdp2"), tmp_path)
    assert message(result).startswith("rank 0: ended by SIGKILL from outside")


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_a_rank_that_runs_out_of_memory_is_named(parallel: str, tmp_path: Path) -> None:
    result = driven(failing("oom", "forward", parallel=parallel, trainer=BK), tmp_path)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rank) == ("oom", 1)
    assert "tried to allocate too much" in message(result)


def test_a_rank_with_an_error_of_its_own_is_named(tmp_path: Path) -> None:
    result = driven(failing("raise", "noise"), tmp_path)
    assert message(result) == "rank 1: RuntimeError: mine alone"
    assert "gloo" in (tmp_path / "run" / "run.log").read_text()  # what rank 0 says of it


def test_a_rank_that_cannot_be_verified_ends_the_others(tmp_path: Path) -> None:
    """In the second step after the five of the clean pass."""
    config = failing("raise", "forward", step=5 + 2, passes="clean,verify", warmup_steps=3)
    result = driven(config, tmp_path)
    assert result.record is not None
    (why,) = result.record.failed_passes.values()
    assert "rank 1: RuntimeError: mine alone" in why


@pytest.mark.parametrize("phase", ["forward", "backward_norms"])
def test_a_rank_that_hangs_is_named(phase: str, tmp_path: Path) -> None:
    result = driven(failing("hang", phase, parallel="fsdp2"), tmp_path, timeout_s=15)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.rank) == ("timeout", 1)
    assert "rank 1 hung in" in message(result)
    assert "example_failing_ranks.py" in message(result)


def test_what_was_measured_before_stands(tmp_path: Path) -> None:
    """Step 3 of the memory pass: the clean pass has done five."""
    config = failing("kill", "forward", step=5 + 3, passes="clean,memory", warmup_steps=3)
    result = driven(config, tmp_path)
    assert result.status == FINISHED
    assert result.figures is not None
    assert result.record is not None
    assert result.record.failed_passes == {
        "memory": "killed: rank 1: ended by SIGKILL from outside; the kernel reports no lack of memory"
    }

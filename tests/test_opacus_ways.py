"""Opacus's other ways, installed by pip: one sweep measures each, and its folder is readable without them."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run, call_dpprof, environment, run_dpprof
from installed import installed_at

from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import TRAINERS

WAYS = {
    "functorch": "DPFunctorchTrainer",
    "ew": "DPExpandedWeightsTrainer",
    "per_layer": "DPPerLayerClippingTrainer",
    "adaptive": "DPAdaptiveClippingTrainer",
    "unwrapped": "DPNonWrappingTrainer",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH with which a process finds the package."""
    return installed_at(tmp_path_factory.mktemp("ways"), ROOT / "examples" / "opacus_ways")


@pytest.fixture(scope="module")
def swept(installed: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has a sweep of all of them and of `flat`."""
    folder = tmp_path_factory.mktemp("swept")
    few = ["--passes", "clean,memory,ledger,gradient_check", "--measured-steps", "2", "--batch-sizes", "2"]
    tiny = ["--device", "cpu", "--model-sizes", "tiny", "--seq-lens", "16", "--sweep-name", "s"]
    trainers = ",".join(["flat", *WAYS])
    ended = run_dpprof(
        folder, "sweep", "--launcher", "in_process", *tiny, *few, "--trainers", trainers, PYTHONPATH=installed
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "other way" not in ended.stderr
    return folder


def run_of(folder: Path, trainer: str) -> RunFolder:
    return RunFolder(folder / "runs" / "s" / f"{trainer}_tiny_bs2_seq16")


@pytest.mark.parametrize("trainer", WAYS.values())
def test_each_is_measured_with_the_right_gradient_and_memory(swept: Path, trainer: str) -> None:
    record, flat = (run_of(swept, name).read_record() for name in (trainer, "DPSGDTrainer"))
    assert record is not None
    assert record.gradient_check is not None
    assert record.gradient_check.relative_error_float64 is not None
    assert record.gradient_check.relative_error_float64 < 1e-12
    assert record.ledger is not None
    assert record.ledger.peak == record.memory.peak_allocated
    assert flat is not None
    assert flat.ledger is not None
    for category in ("parameters", "gradients", "per_sample_gradients"):
        assert record.ledger.after_step[category] == flat.ledger.after_step[category]
    assert list(record.phase_s) == list(flat.phase_s)


def test_without_the_package_its_runs_are_shown_by_their_names(swept: Path) -> None:
    assert not TRAINERS.keys() & set(WAYS.values())
    for arguments in (("compare", "runs/s"), ("summarize",), ("export", "runs/s", "--format", "csv")):
        ended = call_dpprof(swept, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert all(name in ended.stdout for name in WAYS.values()), arguments
    for name in WAYS.values():
        ended = call_dpprof(swept, "show", str(run_of(swept, name).path))
        assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = call_dpprof(swept, "log", "runs/s")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_one_that_is_not_installed_cannot_be_measured(called: Run) -> None:
    ended = called("profile", "--trainer", "per_layer", "--device", "cpu")
    assert ended.returncode == 2
    assert "per_layer" in ended.stderr


def test_they_keep_what_their_package_promises(installed: str, tmp_path: Path) -> None:
    """The package's own tests, and those that hold every trainer, each kind once."""
    held_by = (
        "naive_loop and sdpa and False or accumulated and sgd or lists or empty_batch and sgd or noise_has"
    )
    named = " or ".join(WAYS.values())
    files = ["examples/opacus_ways/test_ways.py", "tests/measure/trainers/test_conformance.py"]
    chosen = f"test_ways or ({named}) and ({held_by})"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *files],
        cwd=ROOT,
        env=environment(tmp_path) | {"PYTHONPATH": installed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(ended.stdout.rpartition(" passed")[0].split()[-1]) > 70

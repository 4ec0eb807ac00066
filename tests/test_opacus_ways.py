"""Opacus's other ways, installed by pip: one sweep measures each, and its folder is readable without them."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, Run, call_dpprof, environment, run_dpprof
from example_runs import known
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
# Those that only clip otherwise have the norms and the memory of `flat`.
CLIP_OTHERWISE = ("per_layer", "adaptive")


@dataclass(frozen=True)
class Swept:
    """The folder that has a sweep of some ways and of `flat`."""

    folder: Path
    ways: tuple[str, ...]

    def run(self, trainer: str) -> RunFolder:
        """The run of a trainer."""
        return RunFolder(self.folder / "runs" / "s" / f"{trainer}_tiny_bs2_seq16")

    @property
    def trainers(self) -> list[str]:
        """The ways by their full names."""
        return [WAYS[way] for way in self.ways]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH with which a process finds the package."""
    return installed_at(tmp_path_factory.mktemp("ways"), ROOT / "examples" / "opacus_ways")


@pytest.fixture(
    scope="module",
    params=[
        tuple(way for way in WAYS if way not in CLIP_OTHERWISE),
        pytest.param(CLIP_OTHERWISE, marks=pytest.mark.exhaustive),
    ],
    ids="-".join,
)
def swept(installed: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Swept:
    folder = tmp_path_factory.mktemp("swept")
    few = ["--passes", "clean,memory,ledger,gradient_check", "--measured-steps", "2", "--batch-sizes", "2"]
    tiny = ["--device", "cpu", "--model-sizes", "tiny", "--seq-lens", "16", "--sweep-name", "s"]
    trainers = ",".join(["flat", *request.param])
    ended = run_dpprof(
        folder, "sweep", "--launcher", "in_process", *tiny, *few, "--trainers", trainers, PYTHONPATH=installed
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "other way" not in ended.stderr
    return Swept(folder, request.param)


def test_each_is_measured_with_the_right_gradient_and_memory(swept: Swept) -> None:
    flat = known(swept.run("DPSGDTrainer").read_record())
    for trainer in swept.trainers:
        record = known(swept.run(trainer).read_record())
        assert known(known(record.gradient_check).relative_error_float64) < 1e-12, trainer
        ledger = known(record.ledger)
        assert ledger.peak == record.memory.peak_allocated, trainer
        for category in ("parameters", "gradients", "per_sample_gradients"):
            assert ledger.after_step[category] == known(flat.ledger).after_step[category], trainer
        assert list(record.phase_s) == list(flat.phase_s)


def test_without_the_package_its_runs_are_shown_by_their_names(swept: Swept) -> None:
    assert not TRAINERS.keys() & set(WAYS.values())
    shown = [("show", str(swept.run(name).path)) for name in swept.trainers]
    of_all = [("compare", "runs/s"), ("summarize",), ("export", "runs/s", "--format", "csv")]
    for arguments in (*of_all, *shown, ("log", "runs/s")):
        ended = call_dpprof(swept.folder, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        if arguments in of_all:
            assert all(name in ended.stdout for name in swept.trainers), arguments


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

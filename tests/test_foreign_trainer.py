"""A trainer in a package of its own, installed by pip: every command and the conformance tests take it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, environment, lay_out_store
from example_runs import known
from installed import installed_at

from dpprof.record.folder import RunFolder

NAME, COLOR = "LoopTrainer", "#7f3c8d"
PHASE, CATEGORY = "per_sample_backward", "flat_gradients"
TINY = ["--device", "cpu", "--model-sizes", "tiny", "--seq-lens", "16"]
# The tests that hold any trainer, each kind once: the longer variants are the built-in trainers' own.
HELD_BY = (
    "naive_loop and sdpa and False",
    "accumulated and sgd",
    "empty_batch and sgd",
    "sampled_batch and 2",
    "lists",
    "held_tensors",
    "noise_has",
    "allocators_truth and tiny-1",
    "same_ledger and changes0",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH with which a process finds the package."""
    return installed_at(tmp_path_factory.mktemp("foreign"), ROOT / "tests" / "foreign_trainer")


@dataclass
class Dpprof:
    """A process that has the package and runs commands, in a folder of its own."""

    folder: Path
    process: "subprocess.Popen[str]"

    def __call__(self, *arguments: str) -> str:
        """What a command printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(arguments), file=self.process.stdin, flush=True)
        code, output, errors = json.loads(self.process.stdout.readline())
        assert code == 0, output + errors
        return str(output)


@pytest.fixture(scope="module")
def dpprof(installed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dpprof]:
    folder, pipe = tmp_path_factory.mktemp("runs"), subprocess.PIPE
    lay_out_store(folder)
    command = [sys.executable, str(ROOT / "tests" / "serve_commands.py"), str(folder)]
    env = environment(folder) | {"PYTHONPATH": installed}
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        yield Dpprof(folder, process)


@pytest.fixture(scope="module")
def sweep(dpprof: Dpprof) -> Path:
    """The folder of a sweep of two batch sizes, beside standard training."""
    few = ["--passes", "clean,memory,ledger", "--measured-steps", "2", "--batch-sizes", "1,2"]
    few += ["--trainers", "standard,dpsgd_loop", "--sweep-name", "s"]
    dpprof("sweep", "--launcher", "in_process", *TINY, *few)
    return dpprof.folder / "runs" / "s"


def test_help_lists_it(dpprof: Dpprof) -> None:
    assert NAME in dpprof("sweep", "--help-all")
    assert "dpsgd_loop" in dpprof("profile", "--help-all")


def test_profile_measures_it_and_its_gradient_is_right(dpprof: Dpprof) -> None:
    few = ["--measured-steps", "2", "--batch-size", "2", "--seq-len", "16", "--free-per-sample", "false"]
    few += ["--passes", "clean,gradient_check", "--launcher", "in_process"]
    dpprof("profile", "--device", "cpu", "--trainer", "dpsgd_loop", "--model-size", "tiny", *few)
    (path,) = dpprof.folder.glob(f"runs/*/{NAME}_tiny_bs2_seq16")
    record = known(RunFolder(path).read_record())
    assert list(record.phase_s) == ["zero_grad", "forward", PHASE, "clip", "noise", "optimizer_step"]
    assert known(known(record.gradient_check).relative_error_float64) < 1e-12
    assert record.held[CATEGORY] > 0, "the option reached it"


def test_a_sweeps_pages_show_it_with_its_phase_and_its_category(sweep: Path) -> None:
    record = known(RunFolder(sweep / record_name(2)).read_record())
    ledger = known(record.ledger)
    assert ledger.peak == record.memory.peak_allocated
    assert ledger.phase_peak[PHASE].by_category[CATEGORY] > 0
    page = (sweep / "comparison.html").read_text()
    assert COLOR in page, "in the growth chart"
    assert "per-sample backward" in page
    assert "flat gradients" in page
    timeline = RunFolder(sweep / record_name(2)).timeline_page.read_text()
    assert PHASE in timeline
    assert "flat gradients" in timeline
    assert NAME in (sweep / "summary.md").read_text()


def record_name(batch_size: int) -> str:
    return f"{NAME}_tiny_bs{batch_size}_seq16"


def test_commands_that_read_runs_show_it(dpprof: Dpprof, sweep: Path) -> None:
    assert re.search(r"adds to standard(.*\n)+dpsgd_loop ", dpprof("compare", str(sweep)))
    assert NAME in dpprof("summarize", "--runs-dir", str(sweep.parent))
    assert f"latency/{PHASE}_ms" in dpprof("export", str(sweep), "--format", "csv")
    assert PHASE in dpprof("show", str(sweep / record_name(2)))
    assert PHASE in dpprof("roofline", str(sweep), "--copy-gib-per-s", "10")


def test_an_estimate_has_its_memory_to_the_byte(dpprof: Dpprof, sweep: Path) -> None:
    few = ["--batch-sizes", "2", "--model-sizes", "tiny", "--trainers", "standard,loop"]  # as its entry point
    dpprof("estimate", "--workers", "1", *TINY, *few, "--savings", "false", "--sweep-name", "e")
    estimated, measured = (
        known(known(RunFolder(folder / record_name(2)).read_record()).ledger)
        for folder in (sweep.parent / "e", sweep)
    )
    assert estimated.at_peak == measured.at_peak


def test_a_fit_finds_its_largest_batch(dpprof: Dpprof, sweep: Path) -> None:
    few = ["--model-sizes", "tiny", "--trainers", "dpsgd_loop", "--device-memory-gib", "0.004"]
    dpprof("fit", "--workers", "1", *TINY, *few, "--sweep-name", "f")
    (row,) = json.loads((sweep.parent / "f" / "fit.json").read_text())
    assert row["trainer"] == NAME
    assert row["largest_batch_size"] > 0


def test_a_fit_on_a_large_device_stops_when_its_time_is_over(dpprof: Dpprof, sweep: Path) -> None:
    """Every sample makes the step longer, and no two batches have the same events to predict from."""
    few = ["--model-sizes", "tiny", "--trainers", "dpsgd_loop", "--device-memory-gib", "64"]
    few += ["--launcher", "in_process", "--workers", "1", "--timeout-s", "0.1"]
    dpprof("fit", *TINY, *few, "--sweep-name", "late")
    (row,) = json.loads((sweep.parent / "late" / "fit.json").read_text())
    assert (row["largest_batch_size"], row["is_at_least"]) == (13, True)


def test_the_tests_of_every_trainer_hold_it(installed: str, tmp_path: Path) -> None:
    """Against the naive per-sample loop, the allocator, fake tensors, and what its package declares."""
    files = ["measure/trainers/test_conformance.py", "measure/passes/test_ledger.py"]
    chosen = f"{NAME} and (({') or ('.join(HELD_BY)}))"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
        + [str(ROOT / "tests" / file) for file in files],
        cwd=ROOT,
        env=environment(tmp_path) | {"PYTHONPATH": installed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = int(ended.stdout.rpartition(" passed")[0].split()[-1])
    assert passed >= len(HELD_BY), "a name above finds no test"

"""An experiment that is done again: which figures its folder has at the end, and which earlier ones serve."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import fine, measure_here
from example_runs import only_run

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.in_process import Done
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.local import LocalMachine
from dpprof.drive.run import beside, drive_experiment, earlier_result, left_over, replace_or_discard
from dpprof.record.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link
from dpprof.record.record import Failure, FailureKind, PassOutcome, PassStatus, Record

CONFIG = ExperimentConfig().resolve(cuda_available=False)
PASSES = CONFIG.measuring.pass_names
OOM, STOPPED = Failure(FailureKind.OOM, "no memory"), Failure(FailureKind.INTERRUPTED, "stopped by the user")
LINK = Link("r", "sqlite:///m.db", True, "0a")
EARLIER, AGAIN = 4, 5


@dataclass(frozen=True)
class Leaves:
    """What a measuring process leaves: `num_finished` passes, perhaps one that runs, a failure."""

    num_finished: int
    running: bool = False
    failure: Failure | None = None

    def write(self, folder: RunFolder, samples: int) -> None:
        passes = {name: PassOutcome(PassStatus.FINISHED) for name in PASSES[: self.num_finished]}
        if self.running:
            passes[PASSES[self.num_finished]] = PassOutcome(PassStatus.RUNNING)
        if passes:
            record = Record(to_flat(CONFIG), {}, passes=passes, step_s=[0.1] * 2, timed_s=0.2)
            folder.write_record(dataclasses.replace(record, samples_per_step=samples))
        if self.failure:
            folder.write_error(self.failure)


@dataclass(frozen=True)
class Scripted:
    """A launcher whose experiments leave what is written here."""

    leaves: Leaves
    can_end_jobs, scratch, machine = True, None, LocalMachine()

    def slots_for(self, job: Job) -> int:
        return 1

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Done:
        job.log.write_text("again")
        self.leaves.write(job.folder, AGAIN)
        failure = self.leaves.failure
        return Done(Exit(0 if failure is None else 1, interrupted=failure is STOPPED))


def earlier_folder(tmp_path: Path, leaves: Leaves) -> RunFolder:
    """One that was logged."""
    folder = RunFolder(tmp_path / "sweep" / "größe 1.again")
    folder.create(CONFIG)
    leaves.write(folder, EARLIER)
    LINK.write(folder.mlflow)
    return folder


def assert_alone(folder: RunFolder) -> None:
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.name]


def do_again(folder: RunFolder, leaves: Leaves) -> Result:
    result = drive_experiment(CONFIG, folder, Runner(Scripted(leaves), 10, lambda line: None))
    assert_alone(folder)
    assert (result.name, result.folder.path) == (folder.name, folder.path)
    return result


def samples_in(folder: RunFolder) -> int | None:
    record = folder.read_record()
    return record.samples_per_step if record else None


ALL = len(PASSES)


@pytest.mark.parametrize(
    ("before", "after", "kept", "status"),
    [
        # Replaced: it has all that was there.
        (Leaves(1, running=True), Leaves(ALL), AGAIN, FINISHED),
        (Leaves(ALL, failure=OOM), Leaves(ALL), AGAIN, FINISHED),
        (Leaves(1, failure=STOPPED), Leaves(2, failure=STOPPED), AGAIN, KILLED),
        (Leaves(0, failure=OOM), Leaves(1, failure=STOPPED), AGAIN, KILLED),
        (Leaves(0, running=True), Leaves(0, failure=OOM), None, FAILED),
        # Stopped too early: all stays.
        (Leaves(2, running=True), Leaves(0, running=True, failure=STOPPED), EARLIER, KILLED),
        (Leaves(2, running=True), Leaves(1, failure=STOPPED), EARLIER, KILLED),
        # Failed: the figures stay, and the folder says so.
        (Leaves(2, running=True), Leaves(0, failure=OOM), EARLIER, FAILED),
    ],
)
def test_new_figures_replace_earlier_ones_when_they_are_there(
    tmp_path: Path, before: Leaves, after: Leaves, kept: int | None, status: str
) -> None:
    """And where they do, or a failure is told, the run in MLflow is to be replaced."""
    folder = earlier_folder(tmp_path, before)
    assert do_again(folder, after).status == status
    assert samples_in(folder) == kept
    link = dataclasses.replace(LINK, complete=(kept, status) == (EARLIER, KILLED))
    assert Link.read(folder.mlflow) == link


@pytest.mark.parametrize("text", ["{", "[]"])
@pytest.mark.parametrize("leaves", [Leaves(len(PASSES)), Leaves(0, failure=OOM)])
def test_a_damaged_link_is_still_there(tmp_path: Path, text: str, leaves: Leaves) -> None:
    """So that it is named when the folder is logged."""
    folder = earlier_folder(tmp_path, Leaves(1))
    folder.mlflow.write_text(text)
    do_again(folder, leaves)
    assert folder.mlflow.read_text() == text


def test_a_stop_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = earlier_folder(tmp_path, Leaves(2, running=True))
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    do_again(folder, Leaves(0, failure=STOPPED))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_failure_is_told_with_the_figures_of_before(tmp_path: Path) -> None:
    folder = earlier_folder(tmp_path, Leaves(2, running=True))
    do_again(folder, Leaves(0, failure=OOM))
    assert folder.read_error() == Failure(FailureKind.OOM, "done again, it failed: no memory", at=OOM.at)
    assert folder.log.read_text() == "again"


def test_a_damaged_folder_is_replaced(tmp_path: Path) -> None:
    folder = earlier_folder(tmp_path, Leaves(ALL))
    folder.record.write_text("{")
    assert do_again(folder, Leaves(0, failure=STOPPED)).status == KILLED
    assert folder.record.read_text() == "{"
    assert do_again(folder, Leaves(ALL)).status == FINISHED


@pytest.mark.parametrize(("left", "kept"), [(Leaves(0, running=True), EARLIER), (Leaves(2), AGAIN)])
def test_what_a_killed_dpprof_left_beside_a_folder(tmp_path: Path, left: Leaves, kept: int) -> None:
    folder = earlier_folder(tmp_path, Leaves(1, running=True))
    beside(folder).create(CONFIG)
    left.write(beside(folder), AGAIN)
    sweep = SweepFolder(folder.path.parent)
    assert [run.name for run in sweep.runs()] == [folder.name], "it is no run of its own"
    replace_or_discard(sweep)
    assert samples_in(folder) == kept
    assert_alone(folder)


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_replacing_that_was_killed_is_brought_to_its_end(tmp_path: Path, renamed: int) -> None:
    folder = earlier_folder(tmp_path, Leaves(1))
    beside(folder).create(CONFIG)
    Leaves(2).write(beside(folder), AGAIN)
    folder.path.rename(folder.path.with_name(f".{folder.name}.before"))
    if renamed == 2:
        beside(folder).path.rename(folder.path)
    assert list(left_over(SweepFolder(folder.path.parent))) == []
    assert samples_in(folder) == AGAIN
    assert_alone(folder)


MODEL = """
import torch
from torch import nn

def factory(config):
    def batches():
        while True:
            yield torch.randn(config.batch_size, 4), torch.randn(config.batch_size, 1)

    def loss(outputs, targets):
        return (outputs - targets).square().sum(dim=1)

    return nn.Linear(4, 1), batches(), loss
"""


def estimated(place: Path, *more: str) -> RunFolder:
    grid = ("--trainers", "bk", "--batch-sizes", "2", "--seq-lens", "8", "--device", "cpu")
    fine(measure_here(place, "estimate", *grid, *more))
    return only_run(place)


def is_taken(folder: RunFolder, campaign: str = "another") -> bool:
    """Whether a campaign beside it, or its own, takes the estimate."""
    own = SweepFolder(folder.path.parent.parent / campaign)
    return earlier_result(own, folder.name, folder.read_config()) is not None


def test_an_estimate_is_taken_unless_versions_or_the_processor_differ(tmp_path: Path) -> None:
    folder = estimated(tmp_path, "--model-sizes", "tiny")
    assert is_taken(folder)
    record = json.loads(folder.record.read_text())
    for name in ("cpu", "cpu_cores", "opacus_version", "transformers_version", "dpprof_version"):
        changed = record | {"environment": record["environment"] | {name: "0.1"}}
        folder.record.write_text(json.dumps(changed))
        assert not is_taken(folder), name


def test_a_model_of_ones_own_is_estimated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownmodel.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = estimated(tmp_path, "--workload", "ownmodel:factory")
    assert not is_taken(folder)
    assert is_taken(folder, folder.path.parent.name), "within a campaign it is the same"

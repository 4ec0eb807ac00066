"""An experiment that is done again: which figures its folder has at the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from example_runs import known

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.in_process import Done
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.local import LocalMachine
from dpprof.drive.run import beside, drive_experiment, replace_or_discard
from dpprof.record.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link
from dpprof.record.record import Failure, FailureKind, PassOutcome, PassStatus, Record

CONFIG = ExperimentConfig().resolve(cuda_available=False)
PASSES = CONFIG.measuring.pass_names
OOM, STOPPED = Failure(FailureKind.OOM, "no memory"), Failure(FailureKind.INTERRUPTED, "stopped by the user")
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
            config = to_flat(CONFIG)
            folder.write_record(
                Record(config, {}, passes=passes, step_s=[0.1] * 2, samples_per_step=samples, timed_s=0.2)
            )
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
    folder = RunFolder(tmp_path / "sweep" / "run")
    folder.create(CONFIG)
    leaves.write(folder, EARLIER)
    return folder


def do_again(folder: RunFolder, leaves: Leaves) -> Result:
    result = drive_experiment(CONFIG, folder, Runner(Scripted(leaves), 10, lambda line: None))
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.name]
    assert (result.name, result.folder.path) == (folder.name, folder.path)
    return result


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
    folder = earlier_folder(tmp_path, before)
    result = do_again(folder, after)
    assert result.status == status
    record = folder.read_record()
    assert (record.samples_per_step if record else None) == kept


def test_a_stop_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = earlier_folder(tmp_path, Leaves(2, running=True))
    folder.mlflow.write_text('{"complete": true}')
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    do_again(folder, Leaves(0, failure=STOPPED))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_failure_is_told_with_the_figures_of_before(tmp_path: Path) -> None:
    folder = earlier_folder(tmp_path, Leaves(2, running=True))
    Link("r", "sqlite:///m.db", True, "0a").write(folder.mlflow)
    do_again(folder, Leaves(0, failure=OOM))
    assert folder.read_error() == Failure(FailureKind.OOM, "done again, it failed: no memory", at=OOM.at)
    assert folder.log.read_text() == "again"
    assert Link.read(folder.mlflow) == Link("r", "sqlite:///m.db", False, "0a")


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
    replace_or_discard(SweepFolder(folder.path.parent))
    record = known(folder.read_record())
    assert record.samples_per_step == kept
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.name]

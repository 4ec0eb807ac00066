"""What Slurm is asked for, and what becomes of jobs in its queue: a stand-in runs them on this machine."""

import errno
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, call_dpprof, fine, lay_out_store, runs_of
from example_jobs import end_of, job, ran
from example_runs import known, only_run
from programs import make_program

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.on_slurm import launcher as slurm
from dpprof.drive.launch.on_slurm.launcher import SlurmLauncher
from dpprof.drive.launch.on_slurm.on_node import CANCELLED, FAILED, Meeting
from dpprof.errors import ConfigError
from dpprof.vocabulary.launchers import SlurmOptions

TOLD = "import os; print(*(os.environ.get(n) for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')))"


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in's queue, with its programs on PATH."""
    text = (ROOT / "tests" / "stand_in_slurm.py").read_text()
    programs, queue = tmp_path / "bin", tmp_path / "queue"
    programs.mkdir()
    queue.mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel"):
        make_program(programs / name, text)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_SLURM", str(queue))
    return queue


def submitted(work: Job, **options: Any) -> Handle:
    return SlurmLauncher(SlurmOptions(**options)).submit(work, print)


def end(work: Job, **options: Any) -> Exit:
    return ran(SlurmLauncher(SlurmOptions(**options)), work)[0]


def asked(queue: Path) -> dict[str, str]:
    """The options of the one batch file, which is then taken away."""
    (batch_file,) = queue.glob("*.sh")
    found = re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", batch_file.read_text(), re.MULTILINE)
    batch_file.unlink()
    return dict(found)


def test_what_is_measured_has_a_node_to_itself(queue: Path, tmp_path: Path) -> None:
    launcher = SlurmLauncher(SlurmOptions(slurm_partition="long", slurm_options="account=me,cpus_per_task=4"))
    ended, lines = ran(launcher, job(tmp_path, "print('here')"))
    assert (ended.code, lines) == (0, ["here"])
    assert ended.environment.keys() == {"node", "slurm_job"}
    options = asked(queue)
    assert options.items() >= {"partition": "long", "account": "me", "nodes": "1", "time": "6"}.items()
    assert options.items() >= {"cpus-per-task": "4", "job-name": "dpprof", "exclusive": ""}.items()
    assert "no-requeue" in options, "a second run would find the files of the first"
    assert os.listdir(tmp_path / "runs") == ["a run"]


def test_others_share_a_node_and_so_do_those_for_which_the_user_says_so(queue: Path, tmp_path: Path) -> None:
    for is_measured, options in ((False, ""), (True, "exclusive=false")):
        end(job(tmp_path / str(is_measured), "", is_measured=is_measured), slurm_options=options)
        assert "exclusive" not in asked(queue)


def test_ranks_go_to_as_many_nodes_as_they_need_gpus(queue: Path, tmp_path: Path) -> None:
    assert SlurmLauncher(SlurmOptions(slurm_gpus_per_node=2)).machine.cuda_available()
    work = job(tmp_path, TOLD, num_ranks=3, num_gpus=3)
    assert [rank.code for rank in end(work, slurm_gpus_per_node=2).ranks] == [0, 0, 0]
    assert asked(queue).items() >= {"nodes": "2", "gpus-per-node": "2", "ntasks-per-node": "1"}.items()
    told = [work.folder.rank(rank).log.read_text().split() for rank in range(3)]
    assert ["".join(one) for *one, _ in told] == ["003", "113", "203"]
    assert len({address for *_, address in told}) == 1


def test_a_rank_that_fails_ends_those_of_other_tasks(queue: Path, tmp_path: Path) -> None:
    program = "import os, sys, time; time.sleep(100 * (os.environ['RANK'] == '0')); sys.exit(3)"
    ended = end(job(tmp_path, program, num_ranks=2), slurm_ranks_per_node=1)
    assert [(rank.code, rank.followed) for rank in ended.ranks] == [(-15, True), (3, False)]


def test_a_job_that_waits_leaves_the_queue_when_it_is_cancelled(queue: Path, tmp_path: Path) -> None:
    (queue / "held").touch()
    handle = submitted(job(tmp_path, ""))
    assert handle.poll() is None
    handle.cancel()
    assert end_of(handle).interrupted
    (state,) = queue.glob("*.state")
    assert state.read_text() == "CANCELLED"
    assert os.listdir(tmp_path / "runs") == ["a run"]


def test_a_task_that_cannot_begin_ends_the_others(queue: Path, tmp_path: Path) -> None:
    work = job(tmp_path, "import time; time.sleep(100)", num_ranks=2)
    blocked = work.folder.path / "ranks"
    blocked.touch()
    began = time.monotonic()
    ended = end(work, slurm_ranks_per_node=1)
    assert time.monotonic() - began < 40
    assert ended.said.startswith("Slurm could not run it: ")
    assert str(blocked) in ended.said


def test_nobody_waits_for_a_meeting_that_will_not_be(tmp_path: Path) -> None:
    for word in (FAILED, CANCELLED):
        meeting = Meeting(tmp_path / word)
        meeting.path.mkdir()
        meeting.say(word)
        assert meeting.chosen() is None
    there = Meeting(tmp_path)
    there.choose("here", 29500)
    assert there.chosen() == ("here", 29500)


def test_a_job_that_was_killed_is_not_waited_for(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm says nothing of its end, and the folder takes no word to it."""

    def no_room(word: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("_ENDING_S", "_ANSWER_S"):
        monkeypatch.setattr(slurm, name, 0.5)
    handle = submitted(job(tmp_path, "import time; time.sleep(100)"))
    deadline = time.monotonic() + 30
    while not list((tmp_path / "runs").glob(".*.slurm/begun")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (queue / "silent").touch()
    monkeypatch.setattr(handle._meeting, "say", no_room)  # type: ignore[attr-defined]
    handle.cancel()
    began = time.monotonic()
    assert end_of(handle).interrupted
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("state", ["NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"])
def test_a_job_that_slurm_ends_says_so(
    state: str, queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_ANSWER_S", 0.1)
    (queue / "held").touch()
    handle = submitted(job(tmp_path, ""))
    (batch_file,) = queue.glob("*.sh")
    batch_file.with_suffix(".state").write_text(state)
    ended = end_of(handle)
    assert (ended.code, ended.interrupted, ended.oom_killed) == (-9, False, state == "OUT_OF_MEMORY")
    assert ended.said == f"Slurm ended job {batch_file.stem} ({state})"


def test_a_node_that_cannot_begin_says_why(queue: Path, tmp_path: Path) -> None:
    wrong = replace(job(tmp_path, ""), command=["no-such-program"])
    why = "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-program'"
    assert end(wrong).said == f"Slurm could not run it: {why}"


def test_jobs_at_a_time(queue: Path, tmp_path: Path) -> None:
    measured = job(tmp_path, "")
    assert SlurmLauncher(SlurmOptions(slurm_jobs=3)).slots_for(measured) == 3
    assert SlurmLauncher(SlurmOptions(slurm_cluster="local")).slots_for(measured) == 1


def test_without_slurm_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match='launcher: slurm cannot be used: Could not detect "srun"'):
        SlurmLauncher(SlurmOptions())


def test_two_ranks_in_tasks_of_their_own_on_this_machine(tmp_path: Path) -> None:
    """Submitit's own executor for one machine, from the command line; the workload is checked first."""
    lay_out_store(tmp_path)
    few = ["--device", "cpu", "--passes", "clean", "--measured-steps", "1", "--warmup-steps", "1"]
    where = ["--launcher", "slurm", "--slurm-cluster", "local", "--slurm-ranks-per-node", "1"]
    sizes = ["--workload", "example_workloads:mlp", "--batch-size", "2", "--seq-len", "1"]
    ranks = ["--parallel", "ddp", "--world-size", "2"]
    fine(call_dpprof(tmp_path, "profile", *where, *sizes, *few, *ranks))
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FINISHED"
    assert run.data.params["slurm_job"]
    record = known(only_run(tmp_path).read_record())
    assert [len(rank.step_s) for rank in record.ranks] == [1, 1]
    left = [path.name for path in tmp_path.rglob(".*") if "mlflow" not in path.name]
    assert left == [], "neither of the check nor of the run"

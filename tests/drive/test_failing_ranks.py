"""An experiment of several ranks, one of which fails: the failure names it, and nothing is left."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import TESTED
from covering import sampled
from example_config import experiment
from example_runs import known

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.endings import culprit
from dpprof.drive.jobs import Runner
from dpprof.drive.launch import child
from dpprof.drive.launch.job import Exit
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.process import JOB
from dpprof.record.figures.results import FAILED, FINISHED, Result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, FailureKind
from dpprof.vocabulary.messages import REFUSED_ELSEWHERE, WAITS_IN
from dpprof.vocabulary.trainers import TRAINERS

EXHAUSTIVE = pytest.mark.exhaustive
GHOST, BK = "DPGhostClippingTrainer", "DPBookKeepingTrainer"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTED)


def failing(how: str, phase: str, *, rank: int = 1, step: int = 2, **settings: object) -> ExperimentConfig:
    given = {"trainer": GHOST, "parallel": "ddp", "passes": "clean", "measured_steps": 2} | settings
    given |= {"world_size": 2, "batch_size": 2, "seq_len": 1, "device": "cpu"}
    given |= {"workload_options": f"how={how},phase={phase},rank={rank},step={step}"}
    return experiment(workload="example_failing_ranks:fails", **given).resolve(cuda_available=False)


def driven(config: ExperimentConfig, place: Path, timeout_s: float = 120) -> Result:
    result = drive_experiment(config, RunFolder(place / "run"), Runner(LocalLauncher(), timeout_s, print))
    assert not [p.pid for p in psutil.Process().children(recursive=True) if JOB in _environment(p)]
    return result


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


KILLED = "ended by SIGKILL from outside"
CASES: list[tuple[str, str, dict[str, Any], str, str]] = [
    *(("kill", phase, {}, "killed", KILLED) for phase in (*TRAINERS[GHOST].phases, "reduce_gradients")),
    ("kill", "backward_norms", {"rank": 0, "parallel": "fsdp2"}, "killed", KILLED),
    ("oom", "forward", {"parallel": "fsdp2", "trainer": BK}, "oom", "tried to allocate too much"),
    ("oom", "forward", {"trainer": BK}, "oom", "tried to allocate too much"),
    ("raise", "noise", {}, "error", "RuntimeError: mine alone"),
    ("refuse", "backward", {"trainer": BK}, "error", "ValueError: mine alone"),
]
ALWAYS = (("kill", "backward_norms"), ("kill", "reduce_gradients"), ("refuse", "backward"))


@pytest.mark.parametrize(
    ("how", "phase", "settings", "kind", "said"),
    sampled(CASES, [case for case in CASES if case[:2] in ALWAYS and "rank" not in case[2]]),
)
def test_a_rank_that_fails_is_named(
    how: str, phase: str, settings: dict[str, Any], kind: str, said: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    result = driven(failing(how, phase, **settings), tmp_path)
    rank = settings.get("rank", 1)
    assert result.status == FAILED
    failure = known(result.failure)
    assert (failure.kind, failure.rank) == (kind, rank)
    assert failure.message.startswith(f"rank {rank}: ")
    assert said in failure.message
    assert time.monotonic() - began < 60
    if how == "refuse":
        assert REFUSED_ELSEWHERE in (tmp_path / "run" / "run.log").read_text()


def test_a_rank_that_cannot_be_verified_ends_the_others(tmp_path: Path) -> None:
    """In the second step after the five of the clean pass."""
    config = failing("raise", "forward", step=5 + 2, passes="clean,verify", warmup_steps=3)
    result = driven(config, tmp_path)
    (why,) = known(result.record).failed_passes.values()
    assert "rank 1: RuntimeError: mine alone" in why


@dataclass
class Clock:
    """Its time-out of a thousand seconds is over five seconds after both ranks have come to the phase."""

    there: Path

    def monotonic(self) -> float:
        came = [path.stat().st_mtime for path in self.there.iterdir()]
        is_over = len(came) == 2 and time.time() > max(came) + 5
        return time.monotonic() + 1000 * is_over


@pytest.mark.parametrize("phase", ["forward", pytest.param("backward_norms", marks=EXHAUSTIVE)])
def test_a_rank_that_hangs_is_named(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the ranks take to start."""
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.setenv("DPPROF_TEST_RANKS_THERE", str(there))
    monkeypatch.setattr(child, "time", Clock(there))
    result = driven(failing("hang", phase, parallel="fsdp2"), tmp_path, timeout_s=1000)
    failure = known(result.failure)
    assert (failure.kind, failure.rank) == ("timeout", 1)
    assert "rank 1 hung in" in failure.message
    assert "example_failing_ranks.py" in failure.message


def test_what_was_measured_before_stands(tmp_path: Path) -> None:
    """Step 3 of the memory pass: the clean pass has done five."""
    config = failing("kill", "forward", step=5 + 3, passes="clean,memory", warmup_steps=3)
    result = driven(config, tmp_path)
    assert result.status == FINISHED
    assert result.figures is not None
    why = "killed: rank 1: ended by SIGKILL from outside; the kernel reports no lack of memory"
    assert known(result.record).failed_passes == {"memory": why}


_KILLED, _ABORTED, _OUT = Exit(-9), Exit(-6), Exit(-9, oom_killed=True)


@pytest.mark.parametrize(
    ("exits", "errors", "expected"),
    [
        ((Exit(1), _KILLED), ("Connection closed by peer", ""), 1),
        ((_KILLED, Exit(1)), ("", "Connection closed by peer"), 0),
        ((_ABORTED, Exit(1)), ("", "mine alone"), 1),
        ((Exit(1), Exit(-15, followed=True)), ("mine alone", ""), 0),
        ((Exit(1), Exit(1)), ("mine alone", "CUDA out of memory"), 1),
        ((_KILLED, _OUT), ("", ""), 1),
        ((Exit(1), Exit(1)), (REFUSED_ELSEWHERE, "mine alone"), 1),
    ],
)
def test_who_failed(exits: tuple[Exit, ...], errors: tuple[str, ...], expected: int, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for rank, text in enumerate(errors):
        if text:
            folder.rank(rank).path.mkdir(parents=True, exist_ok=True)
            folder.rank(rank).write_error(Failure(FailureKind.ERROR, text))
    assert culprit(folder, Exit.of_ranks(exits), on_cuda=False) == expected


_ENDED = Exit(-15, timed_out=True)
_THREAD = f"{WAITS_IN}/x/torch/distributed/\n\nThread 0x1 (most recent call first):\n"
_WAITS = _THREAD + '  File "/x/torch/distributed/c10d.py", line 9 in wait\n'
_COMPUTES = _THREAD + '  File "/x/model.py", line 30 in forward\n'
_LIKE_TORCH = _THREAD + '  File "/home/me/torch/distributed/model.py", line 30 in forward\n'


@pytest.mark.parametrize(
    ("stacks", "on_cuda", "expected"),
    [
        ([_WAITS, _COMPUTES], False, 1),
        ([_COMPUTES, _COMPUTES], False, None),
        ([_WAITS, _LIKE_TORCH], False, 1),
        ([_WAITS, _COMPUTES], True, None),
        ([_WAITS], True, 0),
    ],
)
def test_who_hung(stacks: list[str], on_cuda: bool, expected: int | None, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for rank, text in enumerate(stacks):
        folder.rank(rank).path.mkdir(parents=True, exist_ok=True)
        folder.rank(rank).stacks.write_text(text)
    assert culprit(folder, Exit.of_ranks([_ENDED] * len(stacks)), on_cuda=on_cuda) == expected

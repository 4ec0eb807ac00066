"""What every launcher must do: a class of tests, for a module with a fixture `launcher`."""

import dataclasses
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from example_config import experiment
from example_jobs import end_of, ran
from example_runs import known

from dpprof.drive.jobs import Stop, run_job
from dpprof.drive.launch.job import Exit, Job, measuring_job
from dpprof.drive.launch.launcher import Launcher
from dpprof.errors import CountersUnavailable
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.messages import SAID

CONFIG = experiment(
    workload="example_workloads:mlp", device="cpu", batch_size=2, seq_len=1, passes="clean", measured_steps=1
)
# Starts a process of its own and goes on for ever; the deaf one whatever it is asked.
ENDLESS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(240)", *sys.argv[1:]])
print("one", flush=True)
time.sleep(240)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
# A poll that waited for such a job would take longer, on a slow machine too.
WAITS_S = 30


def endless(folder: RunFolder, timeout_s: float, program: str = ENDLESS) -> Job:
    return Job(folder, [sys.executable, "-c", program, mark_of(folder)], folder.log, timeout_s)


def mark_of(folder: RunFolder) -> str:
    """What tells the processes of a job from others, on whatever machine."""
    return f"for {folder.path}"


def processes_of(folder: RunFolder) -> list[int]:
    """Living processes that bear a folder's mark."""
    every = psutil.process_iter(["cmdline"])  # a zombie has none
    return [process.pid for process in every if mark_of(folder) in (process.info["cmdline"] or [])]


def assert_gone(folder: RunFolder) -> None:
    deadline = time.monotonic() + 60
    while processes_of(folder):
        assert time.monotonic() < deadline, "something outlived the job"
        time.sleep(0.1)


class LauncherConformance:
    """Tests of jobs that end, fail, go on for ever and are cancelled."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunFolder:
        folder = RunFolder(tmp_path / "a run")
        folder.create(CONFIG.resolve(cuda_available=False))
        return folder

    def test_a_job_that_is_done(self, launcher: Launcher, folder: RunFolder) -> None:
        ended, lines = ran(launcher, measuring_job(folder.read_config(), folder, 120))
        assert (ended.code, ended.timed_out, ended.interrupted, ended.oom_killed) == (0, False, False, False)
        record = known(folder.read_record())
        assert record.headline_finished
        assert any(line.startswith(SAID) for line in lines)
        assert folder.read_error() is None

    def test_any_other_command_and_its_lines(self, launcher: Launcher, folder: RunFolder) -> None:
        """As that of a profiler around the measuring process."""
        program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
        ended, lines = ran(launcher, Job(folder, [sys.executable, "-c", program], folder.counter_log, 60))
        assert ended.code == 7
        assert sorted(lines) == ["err", "out"]
        assert sorted(folder.counter_log.read_text().split()) == ["err", "out"]

    def test_a_job_that_runs(self, launcher: Launcher, folder: RunFolder) -> None:
        """Polling does not wait, passes on what was said so far, and cancelling ends all that was started."""
        if not launcher.can_end_jobs:
            return
        lines: list[str] = []
        handle = launcher.submit(endless(folder, 240, DEAF + ENDLESS), lines.append)
        deadline = time.monotonic() + 120
        while lines != ["one"]:
            began = time.monotonic()
            assert handle.poll() is None
            assert time.monotonic() - began < WAITS_S
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(processes_of(folder)) == 2
        handle.cancel()
        handle.cancel()
        ended = end_of(handle)
        assert (ended.interrupted, ended.timed_out) == (True, False)
        assert ended.code < 0
        assert handle.poll() == ended
        assert_gone(folder)

    def test_a_job_that_takes_too_long(self, launcher: Launcher, folder: RunFolder) -> None:
        if not launcher.can_end_jobs:
            # Says so, and holds to it: a measuring job is over once it is submitted.
            handle = launcher.submit(measuring_job(folder.read_config(), folder, 0.1), print)
            assert handle.poll() == Exit(0)
            return
        ended, _ = ran(launcher, endless(folder, 2))
        assert (ended.interrupted, ended.timed_out) == (False, True)
        assert_gone(folder)

    def test_a_job_does_not_outlive_a_fault(self, launcher: Launcher, folder: RunFolder) -> None:
        def fault(line: str) -> None:
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            run_job(launcher, endless(folder, 60), fault, Stop())
        assert_gone(folder)

    def test_the_machine_answers(self, launcher: Launcher, folder: RunFolder) -> None:
        measured = measuring_job(folder.read_config(), folder, 1)
        assert measured.is_measured
        assert launcher.slots_for(measured) >= 1
        assert launcher.slots_for(dataclasses.replace(measured, is_measured=False)) >= 1
        assert isinstance(launcher.machine.cuda_available(), bool)
        assert 0 <= launcher.machine.busy_pct() <= 100
        with suppress(CountersUnavailable):
            assert launcher.machine.ncu("cpu").path

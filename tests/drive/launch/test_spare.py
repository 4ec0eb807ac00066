"""The process that starts before its experiment is known: whatever befalls it, nothing is lost.

Its imports are stopped by a signal where a test needs a process that is still importing.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import TESTED, fine, lay_out_store, run_dpprof
from example_config import experiment
from example_jobs import assert_gone, command, end_of, is_alive
from example_runs import known

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.in_process import InProcessLauncher
from dpprof.drive.launch.job import MEASURE, Exit, Job, measuring_job
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.launch.spare import WAIT, Spare
from dpprof.record.folder import RunFolder

SMALL: dict[str, Any] = {"workload": "example_workloads:mlp", "device": "cpu", "batch_size": 2, "seq_len": 1}
SMALL |= {"passes": "clean", "warmup_steps": 1, "measured_steps": 1}
# A process that waits says so before it imports, and ends itself if it is told to.
CUSTOM = """
import os, sys
if "--wait" in sys.orig_argv:
    print("early output", flush=True)
    if os.environ.get("FAILS_EARLY"):
        os._exit(3)
"""
DRIVER = """
import sys, time
from dpprof.drive.launch.local import LocalLauncher
launcher = LocalLauncher()
launcher.start_early()
print("started", flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(CUSTOM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), TESTED]))


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    del made
    assert not waiting(), "a process that nobody needs was left"


def job(path: Path, *, timeout_s: float = 120, **settings: Any) -> Job:
    config, folder = experiment(**SMALL | settings).resolve(cuda_available=False), RunFolder(path)
    folder.create(config)
    return measuring_job(config, folder, timeout_s)


def early_process(launcher: LocalLauncher) -> psutil.Process:
    """Start a process early; not in a fixture, as pytest changes the environment after those."""
    launcher.start_early()
    (early,) = waiting()
    return early


def waiting(parent: int | None = None) -> list[psutil.Process]:
    """The processes that wait, or waited, for an experiment of a driving process, by default of this one."""
    children = psutil.Process(parent).children()
    return [child for child in children if command(child)[-2:] == [MEASURE, WAIT]]


def submitted(launcher: LocalLauncher, asked: Job) -> Child:
    handle = launcher.submit(asked, lambda line: None)
    assert isinstance(handle, Child)
    return handle


def assert_measured(asked: Job, ended: Exit) -> None:
    assert ended.code == 0, asked.log.read_text()
    assert known(asked.folder.read_record()).step_s


def test_it_runs_the_next_experiment_as_a_process_of_its_own(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = early_process(launcher)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")  # as MLflow does when it is opened
    began = time.monotonic()
    asked = job(tmp_path / "run", workload="example_workloads:telling")
    assert_measured(asked, end_of(submitted(launcher, asked)))
    log = asked.log.read_text()
    assert log.startswith("early output"), "of the imports"
    assert f"given {asked.folder.path.absolute()}" in log
    assert "marked True" in log
    startup_s = known(known(asked.folder.read_record()).startup_s)
    assert 0 < startup_s < time.monotonic() - began, "counted from when it was asked"
    assert not is_alive(early)


def test_a_command_gives_it_the_first_experiment(tmp_path: Path) -> None:
    """Although MLflow changes the environment between."""
    small = ["--workload", "example_workloads:mlp", "--trainer", "standard", "--seq-len", "1"]
    few = ["--passes", "clean", "--measured-steps", "1", "--device", "cpu"]
    lay_out_store(tmp_path)
    fine(run_dpprof(tmp_path, "profile", *small, *few, PYTHONPATH=os.environ["PYTHONPATH"]))
    (log,) = tmp_path.glob("runs/*/*/run.log")
    assert log.read_text().startswith("early output")


@pytest.mark.parametrize("how", ["fails at its start", "killed at the gate"])
def test_another_takes_over_if_it_ends_before_it_has_begun(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also if its experiment had been sent to it."""
    asked = job(tmp_path / "run")
    if how == "fails at its start":
        monkeypatch.setenv("FAILS_EARLY", "1")
        launcher.start_early()
        while waiting():
            time.sleep(0.01)
        handle = submitted(launcher, asked)
    else:
        early = early_process(launcher)
        early.suspend()
        handle = submitted(launcher, asked)
        early.kill()
    assert_measured(asked, end_of(handle))
    assert "early output" not in asked.log.read_text()


def test_another_takes_over_if_it_ends_while_it_is_given_its_experiment(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still ran when it was asked."""
    early, suits = early_process(launcher), Spare.suits

    def suits_and_ends(spare: Spare, environment: dict[str, str]) -> bool:
        found = suits(spare, environment)
        early.kill()
        while early.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        return found

    monkeypatch.setattr(Spare, "suits", suits_and_ends)
    asked = job(tmp_path / "run")
    assert_measured(asked, end_of(submitted(launcher, asked)))
    assert "early output" not in asked.log.read_text()


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_it_is_ended_while_it_waits_at_the_gate(launcher: LocalLauncher, tmp_path: Path, how: str) -> None:
    """By Ctrl-C or a time-out, which counts from when it got its experiment; no other process takes over."""
    early = early_process(launcher)
    early.suspend()
    handle = submitted(launcher, job(tmp_path / "run", timeout_s=120.0 if how == "cancelled" else 0.1))
    if how == "cancelled":
        handle.cancel()
    else:
        while early.status() != psutil.STATUS_ZOMBIE and handle.poll() is None:
            time.sleep(0.01)
    ended = end_of(handle)
    assert (ended.interrupted, ended.timed_out) == (how == "cancelled", how == "late")
    assert not waiting()
    assert not (tmp_path / "run" / "record.json").exists()


def test_another_environment_or_folder_gets_a_process_of_its_own(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = early_process(launcher)
    monkeypatch.chdir(tmp_path)
    handle = submitted(launcher, job(tmp_path / "run"))
    assert not waiting(), "the one that does not suit is ended"
    assert not early.is_running()
    handle.cancel()
    assert end_of(handle).interrupted


def test_it_ends_with_a_driving_process_that_is_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=tmp_path, stdout=subprocess.PIPE)
    assert known(driver.stdout).readline() == b"started\n"
    (early,) = waiting(driver.pid)
    driver.kill()
    driver.communicate()
    assert_gone([early])


def test_none_starts_for_experiments_in_this_process_or_from_another_thread() -> None:
    """It would end with that thread."""
    InProcessLauncher().start_early()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(LocalLauncher().start_early).result()
        assert not waiting()
    assert not waiting()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL

"""Estimates as forks of one process: they end as any job does, and nothing is left of them."""

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
from conftest import TESTED
from example_jobs import assert_gone, command, end_of, ran
from example_runs import known

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.drive.launch import forks
from dpprof.drive.launch.job import Job, measuring_job
from dpprof.drive.launch.local import LocalLauncher
from dpprof.process import JOB
from dpprof.record.folder import RunFolder

WORKLOAD = "example_workloads:mlp"
SLOW: dict[str, Any] = {"trainer": "ghost", "workload": "SimpleBigModel", "model_size": "1b"}
SLOW |= {"seq_len": 512, "device": "cuda", "target": "H100"}


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTED)
        yield


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalLauncher]:
    """It has made its first estimate, so that it forks."""
    made = LocalLauncher()
    assert run(made, job(tmp_path_factory.mktemp("first") / "run")) == 0
    yield made
    for process in forking():
        process.kill()


def job(path: Path, *, timeout_s: float = 120, **settings: Any) -> Job:
    values = {"workload": WORKLOAD, "device": "cpu", "batch_size": 2, "seq_len": 8, "device_memory_gib": 1}
    config = parse_experiment(values | settings, EstimatingConfig).resolve(cuda_available=False)
    folder = RunFolder(path)
    folder.create(config)
    return measuring_job(config, folder, timeout_s)


def forking(parent: int | None = None) -> list[psutil.Process]:
    """The processes that fork for a driving one, by default this."""
    children = psutil.Process(parent).children()
    return [child for child in children if "--fork" in command(child)]


def run(launcher: LocalLauncher, job: Job) -> int:
    return ran(launcher, job)[0].code


def test_one_process_forks_all_estimates(launcher: LocalLauncher, tmp_path: Path) -> None:
    (parent,) = forking()
    first = job(tmp_path / "first")
    ended, lines = ran(launcher, first)
    assert (ended.code, ended.oom_killed, ended.timed_out) == (0, False, False)
    assert ended.peak_rss is None or ended.peak_rss > 2**20
    assert any("estimate pass" in line for line in lines)
    assert "estimate pass" in first.log.read_text()
    failed = job(tmp_path / "failed", workload="example_workloads:not_a_workload")
    assert run(launcher, failed) == 1
    assert known(failed.folder.read_error()).kind == "error"
    settings: dict[str, Any] = {"workload": "SimpleBigModel", "model_size": "tiny", "trainer": "bk"}
    forked = job(tmp_path / "forked", **settings)
    assert run(launcher, forked) == 0
    assert forking() == [parent]
    alone = job(tmp_path / "alone", **settings)
    subprocess.run(alone.command, check=True, stdout=subprocess.DEVNULL)
    ledgers = [known(known(one.folder.read_record()).ledger) for one in (forked, alone)]
    assert ledgers[0].peak == ledgers[1].peak
    assert ledgers[0].traffic == ledgers[1].traffic


def test_a_fork_has_the_arguments_of_a_process_of_its_own(launcher: LocalLauncher, tmp_path: Path) -> None:
    """Its folder is absolute, as a workload may change the working directory; and it bears its job's mark."""
    made = job(Path(os.path.relpath(tmp_path / "told")), workload="example_workloads:telling")
    assert run(launcher, made) == 0, made.log.read_text()
    told = made.log.read_text()
    assert f"given {made.folder.path.absolute()}" in told
    assert "marked True" in told
    assert all(JOB not in one.environ() for one in forking())


def test_one_is_cancelled_and_one_that_is_too_slow_is_ended(launcher: LocalLauncher, tmp_path: Path) -> None:
    (parent,) = forking()
    handle = launcher.submit(job(tmp_path / "cancelled", **SLOW), lambda line: None)
    time.sleep(0.5)
    assert handle.poll() is None
    assert len(parent.children()) == 1
    handle.cancel()
    assert end_of(handle).interrupted
    late, _ = ran(launcher, job(tmp_path / "late", timeout_s=0.3, **SLOW))
    assert late.timed_out
    assert not parent.children()


def test_a_forking_process_that_is_killed_is_replaced(launcher: LocalLauncher, tmp_path: Path) -> None:
    (parent,) = forking()
    handle = launcher.submit(job(tmp_path / "lost", **SLOW), lambda line: None)
    time.sleep(1)
    running = parent.children()
    assert len(running) == 1
    parent.kill()
    assert end_of(handle, 10).code == -signal.SIGKILL
    assert_gone(running)
    assert run(launcher, job(tmp_path / "again")) == 0
    (other,) = forking()
    assert other.pid != parent.pid


def test_a_forking_process_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then an ordinary process estimates; a late answer is not taken for the next one's."""
    monkeypatch.setattr(forks, "_STARTING_S", 0.01)
    before = forking()
    assert run(LocalLauncher(), job(tmp_path / "first")) == 0
    assert forking() == before


def test_nobody_waits_for_a_forking_process_that_starts_but_who_asked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import os\nwhile os.read(0, 2**16):\n    pass")  # until the driving process ends it
    monkeypatch.setattr(forks, "MEASURE", str(silent))
    made, before = forks.Forks(), forking()
    with ThreadPoolExecutor(1) as pool, Path(os.devnull).open("w") as log:
        asked = pool.submit(made.start, job(tmp_path / "run"), log.fileno(), "mark", dict(os.environ))
        while not (starting := [one for one in forking() if one not in before]):
            assert not asked.done()
            time.sleep(0.05)
        assert made.code_of(1) is None
        assert not asked.done(), "it still waits"
        starting[0].kill()
        with pytest.raises(forks.NoForks):
            asked.result()


def test_nothing_outlives_a_driving_process_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dpprof", "estimate", "--target", "H100", "--trainers", "flat"]
    driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (parents := forking(driver.pid)) or not parents[0].children():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started = [*parents, *parents[0].children()]
    driver.kill()
    driver.wait()
    assert_gone(started)

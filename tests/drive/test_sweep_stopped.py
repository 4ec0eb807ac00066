"""Sweeps that are stopped or cut off from MLflow: real signals, real processes.

A driver that is killed is one of the faults that `faults/test_faults.py` tries.
"""

import signal
import time
from pathlib import Path

import psutil
import pytest
from conftest import call_dpprof, errors_of, fine, measure_here, runs_of
from example_jobs import assert_gone, command
from started import Process, started, store_away

from dpprof.drive.launch.job import MEASURE

UNLUCKY = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
UNLUCKY += ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory"]
UNLUCKY += ["--sweep-name", "stopped"]
RESUME = [*UNLUCKY, "--batch-sizes", "2,4", "--resume", "true"]


def start_hanging(folder: Path, batch_sizes: str) -> Process:
    """A sweep that hangs in its experiment of batch size 7, once it does."""
    record = folder / "runs" / "stopped" / "StandardTrainer_unlucky_bs7_seq1" / "record.json"
    process = started(folder, ["sweep", *UNLUCKY, "--batch-sizes", batch_sizes], record.exists)
    time.sleep(1.0)
    return process


def measuring_process(driver: Process) -> psutil.Process:
    """The measuring process of a running sweep."""
    (child,) = psutil.Process(driver.pid).children()
    assert MEASURE in command(child)
    return child


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep stopped by Ctrl-C during its second of three experiments."""
    folder = tmp_path_factory.mktemp("stopped")
    process = start_hanging(folder, "2,7,4")
    child = measuring_process(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)  # more signals change nothing
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "1 of 3 experiments are finished" in errors
    assert "Traceback" not in errors
    assert_gone([child])
    return folder


def test_ctrl_c_keeps_what_was_measured(stopped: Path) -> None:
    statuses = {name: run.info.status for name, run in runs_of(stopped).items()}
    assert statuses == {
        "stopped": "KILLED",
        "StandardTrainer_unlucky_bs2_seq1": "FINISHED",
        "StandardTrainer_unlucky_bs7_seq1": "KILLED",
    }


def test_resume_does_only_what_is_missing(stopped: Path) -> None:
    first = stopped / "runs" / "stopped" / "StandardTrainer_unlucky_bs2_seq1" / "record.json"
    measured_at = first.stat().st_mtime_ns
    before = runs_of(stopped)
    fine(measure_here(stopped, "sweep", *RESUME))
    assert first.stat().st_mtime_ns == measured_at, "a finished cell was measured again"
    after = runs_of(stopped)
    assert after["stopped"].info.run_id == before["stopped"].info.run_id
    assert after["stopped"].info.status == "FINISHED"
    assert after["StandardTrainer_unlucky_bs4_seq1"].info.status == "FINISHED"


def test_resume_refuses_other_settings(stopped: Path) -> None:
    assert "lr=0.01, now lr=0.5" in errors_of(call_dpprof(stopped, "sweep", *RESUME, "--lr", "0.5"))


def test_nothing_is_lost_when_mlflow_goes_away(tmp_path: Path) -> None:
    """The store is taken away while an experiment runs, and given back for `dpprof log`."""
    process = start_hanging(tmp_path, "2,7")
    with store_away(tmp_path):
        measuring_process(process).kill()
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 3, errors
    assert "warning: MLflow at" in output
    assert (tmp_path / "runs" / "stopped" / "summary.md").exists()

    fine(call_dpprof(tmp_path, "log", "runs/stopped"))
    statuses = {name: run.info.status for name, run in runs_of(tmp_path).items()}
    assert statuses == {
        "stopped": "FAILED",
        "StandardTrainer_unlucky_bs2_seq1": "FINISHED",
        "StandardTrainer_unlucky_bs7_seq1": "FAILED",
    }
    fine(call_dpprof(tmp_path, "log", "runs/stopped"))
    assert len(runs_of(tmp_path)) == 3, "logged twice"

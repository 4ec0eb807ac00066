"""The counters pass with a stand-in for `ncu`: real processes on the CPU, only what is counted is made up."""

import dataclasses
import os
import shutil
import sys
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest
from conftest import ROOT, artifacts_of
from example_config import changed, experiment
from example_ncu import STEP, StandIn
from example_runs import known
from mlflow import MlflowClient

from dpprof.config.counter_metrics import BASIC
from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.counters import count
from dpprof.drive.jobs import Runner, Stop
from dpprof.drive.launch.job import MEASURE
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.ncu import program
from dpprof.drive.run import drive_experiment
from dpprof.drive.sweep import Sweep, reusable_results
from dpprof.errors import CountersError
from dpprof.pages.sweep_reports import write_sweep_reports
from dpprof.record.figures.results import FAILED, FINISHED, KILLED, Result, describe, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, PassStatus, Record
from dpprof.tracking.tracker import Tracker

CONFIG = experiment(
    trainer="DPSGDTrainer",
    batch_size=2,
    seq_len=16,
    device="cpu",
    passes="clean",
    measured_steps=1,
    counters="auto",
).resolve(cuda_available=False)


@pytest.fixture
def ncu(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A machine that may count on its CPU: the rest of the path is the real one."""
    monkeypatch.setenv("PATH", f"{stand_in.place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(program, "require", lambda device: program.Ncu(str(stand_in.place / "ncu")))
    return stand_in


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An odd name, with a percent sign, which begins a placeholder in ncu's file names."""
    return RunFolder(tmp_path / "100 % & more" / "run")


def drive(folder: RunFolder, config: ExperimentConfig = CONFIG) -> Result:
    lines: list[str] = []
    result = drive_experiment(config, folder, Runner(LocalLauncher(), 600, lines.append))
    (folder.path / "lines.txt").write_text("\n".join(lines))
    return result


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with everything but its counters, really measured."""
    folder = RunFolder(tmp_path_factory.mktemp("measured") / "run")
    result = drive(folder, changed(CONFIG, counters="off"))
    assert result.status == FINISHED
    return folder.path


def copied(folder: RunFolder, measured: Path, config: ExperimentConfig) -> Record:
    """The record of a copy of a measured folder."""
    shutil.copytree(measured, folder.path, dirs_exist_ok=True)
    folder.write_config(config)
    return known(folder.read_record())


def count_in(
    folder: RunFolder,
    measured: Path,
    config: ExperimentConfig,
    stop: Stop | None = None,
    timeout_s: float = 60,
) -> Result:
    """Count in a copy of a measured folder."""
    runner = Runner(LocalLauncher(), timeout_s, lambda line: None, stop or Stop())
    count(config, folder, copied(folder, measured, config), runner)
    return read_result(folder)


def export_command(ncu: StandIn) -> list[str]:
    """How the program was asked to count."""
    return next(call for call in ncu.calls if "--export" in call)


def processes_of(folder: RunFolder) -> list[psutil.Process]:
    """Living processes that were started for a run folder."""
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if any(str(folder.path) in part for part in one.info["cmdline"] or [])]


def outcome(result: Result) -> PassOutcome:
    return known(result.record).passes["counters"]


def test_the_step_is_counted_in_a_second_process(
    ncu: StandIn, folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    result = drive(folder)
    assert result.status == FINISHED
    assert outcome(result).status == "finished"
    record = known(result.record)
    assert sum(row.launches for row in known(record.counters).rows) == 11
    assert known(record.counters).settings["version"] == "2024.1.1.0"
    assert record.environment["ncu_cache_control"] == "none"
    figures = result.metrics
    assert figures["counters/forward/kernel_ms"] == pytest.approx((3 + 40 + 10 + 6) / 1e3)
    report = "ncu_reports/report_DPSGDTrainer_bs2_seq16"
    kinds = ("ncu-rep", "csv")
    assert [(folder.path / f"{report}.{kind}").read_text() for kind in kinds] == [STEP, STEP]
    assert "the counted step is done" in folder.counter_log.read_text()
    assert "counters pass: 3 kernels" in (folder.path / "lines.txt").read_text()
    assert read_result(folder).record == record
    tracker = Tracker()
    tracker.open()
    run_id = tracker.log_result(result, {})
    run = MlflowClient().get_run(run_id)
    assert run.data.metrics["counters/dram_read_mib"] == pytest.approx(30019616 / 2**20)
    assert figures["counters/class/matrix_product/kernel_launches"] == 3
    assert run.data.params["ncu_version"] == "2024.1.1.0"
    assert run.data.params["ncu_clock_control"] == "none"
    assert {"ncu_reports", "ncu.log", "kernels.json"} <= artifacts_of(tmp_path, run)
    assert artifacts_of(tmp_path, run, "ncu_reports") == {f"{report}.{kind}" for kind in kinds}


def test_the_command_line(ncu: StandIn, folder: RunFolder, measured: Path) -> None:
    count_in(folder, measured, CONFIG)
    command = export_command(ncu)
    wrapped = [sys.executable, "-P", MEASURE, "--counted-step", str(folder.path)]
    assert command[-len(wrapped) :] == wrapped
    options = command[: -len(wrapped)]
    for name, value in {
        "--profile-from-start": "off",
        "--replay-mode": "kernel",
        "--clock-control": "none",
        "--cache-control": "none",
        "--config-file": "off",
        "--metrics": ",".join(BASIC),
    }.items():
        assert options[options.index(name) + 1] == value
    assert "--nvtx" in options
    assert not any(option.startswith("--nvtx-include") for option in options)
    export = options[options.index("--export") + 1]
    assert export == str(folder.counter_report(CONFIG, "")).replace("%", "%%")


def test_the_chips_own_names_are_asked_for(ncu: StandIn, folder: RunFolder, measured: Path) -> None:
    names = ["gpu__time_duration", "dram__bytes_op_read", "dram__bytes_op_write", "sm__cycles_active"]
    ncu.plan(metrics=names, report=(ROOT / "tests" / "drive" / "ncu" / "reports" / "sm_120.csv").read_text())
    wanted = "dram_read_throughput,dram__bytes_write.sum,sm__cycles_active.avg,gst_throughput"
    result = count_in(folder, measured, changed(CONFIG, counter_metrics=wanted))
    command = export_command(ncu)
    assert command[command.index("--metrics") + 1] == (
        "gpu__time_duration.sum,dram__bytes_op_read.sum,dram__bytes_op_write.sum,sm__cycles_active.avg"
    )
    figures = result.metrics
    assert figures["counters/dram_read_gib_per_s"] == pytest.approx(1000 / 2**30 / 2e-6)
    assert "counters/l1_global_store_mib" not in figures
    assert known(known(result.record).counters).missing == {
        "sm__cycles_active.avg": "the report has none of it",
        "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum": "this GPU has no such metric "
        "(ncu --query-metrics lists those it has)",
    }


DONE = "[dpprof] the counted step is done"
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"metrics": []}, "skipped", "ncu finds no NVIDIA driver"),
    ({"say": ["==ERROR== ERR_NVGPUCTRPERM"], "exit_code": 0}, "skipped", "this user may not read"),
    ({"say": ["==ERROR== a driver resource was unavailable"], "exit_code": 9}, "skipped", "another tool"),
    ({"say": ["==ERROR== Failed to find metric a__x"], "exit_code": 1}, "failed", "the GPU has no metric"),
    ({"say": ["==ERROR== Odd."], "exit_code": 1}, "failed", "ncu failed: Odd.; see ncu.log"),
    ({"say": [DONE, "==ERROR== No report."], "exit_code": 1}, "failed", "ncu failed: No report."),
    ({"exit_code": 0}, "failed", "ncu failed: it ended with exit code 0 and left no report"),
    ({"report": "==WARNING== No kernels.\n"}, "failed", "report_DPSGDTrainer_bs2_seq16.csv holds no"),
]


@pytest.mark.parametrize(
    ("mode", "plan", "status", "said"),
    [
        pytest.param(mode, *case, marks=[pytest.mark.exhaustive] if (number + place) % 2 else [])
        for number, case in enumerate(CASES)
        for place, mode in enumerate(("auto", "ncu"))
    ],
)
def test_a_pass_that_counts_nothing(
    ncu: StandIn, folder: RunFolder, measured: Path, mode: str, plan: dict[str, Any], status: str, said: str
) -> None:
    """auto goes without, ncu fails; in both the clean figures stand, and the sentence is the same."""
    ncu.plan(**plan)
    result = count_in(folder, measured, changed(CONFIG, counters=mode))
    assert known(result.record).step_s
    assert outcome(result).status == status
    assert (outcome(result).reason or "").startswith(said)
    if status == "failed":
        assert known(result.record).failed_passes == {"counters": outcome(result).reason}
    elif mode == "auto":
        assert describe(result).endswith("; no counters")
    assert result.status == (FINISHED if mode == "auto" else FAILED)
    if mode == "ncu":
        failure = known(result.failure)
        assert (failure.kind, failure.message) == ("error", outcome(result).reason)


def test_the_wrapped_process_fails(ncu: StandIn, folder: RunFolder, measured: Path) -> None:
    """For real: there is no such factory."""
    config = dataclasses.replace(CONFIG, workload="example_workloads:nothing_of_the_name")
    found = outcome(count_in(folder, measured, config))
    reason = known(found.reason)
    assert found.status == "failed"
    assert reason.startswith("the measured process failed under ncu: ConfigError: workload")
    assert reason.endswith("see ncu.log")
    assert "Traceback" in folder.counter_log.read_text()


def test_without_an_nvidia_gpu_nothing_is_started(folder: RunFolder, measured: Path) -> None:
    """auto says what it goes without; ncu does not even measure."""
    result = count_in(folder, measured, CONFIG)
    assert result.status == FINISHED
    assert outcome(result).status == "skipped"
    assert "need an NVIDIA GPU" in (outcome(result).reason or "")
    assert (outcome(result).seconds or 0) < 0.5
    assert not folder.counter_reports.exists()
    other = RunFolder(folder.path.with_name("other"))
    refused = drive(other, changed(CONFIG, counters="ncu"))
    assert refused.record is None
    assert known(refused.failure).message == outcome(result).reason
    assert not other.log.exists()


def test_resume_counts_what_could_not_be_counted_before(
    ncu: StandIn, folder: RunFolder, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where it can be by now: a machine without a GPU measures nothing twice."""
    ncu.plan(metrics=[])  # no driver
    assert outcome(count_in(folder, measured, CONFIG)).status == "skipped"
    drive_config = DriveConfig(runs_dir=str(folder.path.parent.parent))
    name, experiments = folder.path.parent.name, {"run": CONFIG}
    sweep = Sweep(name, drive_config, LocalLauncher(), experiments, write_reports=write_sweep_reports)
    assert list(reusable_results(sweep)) == []
    monkeypatch.undo()  # without the stand-in: this machine has no GPU
    assert list(reusable_results(sweep)) == ["run"]


def test_the_pass_takes_too_long(ncu: StandIn, folder: RunFolder, measured: Path) -> None:
    ncu.plan(hang=True)
    failure = known(count_in(folder, measured, changed(CONFIG, counters="ncu"), timeout_s=3).failure)
    assert failure.kind == "timeout"
    assert failure.message.startswith("stopped after timeout_s=3 seconds")
    assert processes_of(folder) == []


def test_the_pass_is_stopped(ncu: StandIn, folder: RunFolder, measured: Path) -> None:
    stop = Stop()
    Timer(1.5, stop.request).start()
    result = count_in(folder, measured, CONFIG, stop)
    assert known(result.failure).kind == "interrupted"
    assert result.status == KILLED
    assert processes_of(folder) == []


def test_ctrl_c_while_the_program_talks(
    ncu: StandIn, folder: RunFolder, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal it ends the program too."""
    stop = Stop()

    def interrupted(self: program.Ncu) -> frozenset[str]:
        stop.request()
        raise CountersError("ncu --query-metrics failed: exit code -2")

    monkeypatch.setattr(program.Ncu, "available_metrics", interrupted)
    result = count_in(folder, measured, CONFIG, stop)
    assert result.status == KILLED
    assert outcome(result).reason == "stopped by the user"


@pytest.mark.parametrize("mode", ["auto", "ncu"])
def test_a_killed_counters_pass_is_no_end(folder: RunFolder, measured: Path, mode: str) -> None:
    """As after SIGKILL of the driver: the pass runs in the record, and nothing says why it is not done."""
    record = copied(folder, measured, changed(CONFIG, counters=mode))
    record.passes["counters"] = PassOutcome(PassStatus.RUNNING)
    folder.write_record(record)
    result = read_result(folder)
    assert record.failed_passes == {"counters": "it did not finish"}
    assert result.status == (FINISHED if mode == "auto" else FAILED)
    assert (result.failure.kind if result.failure else None) == (None if mode == "auto" else "killed")

"""The counters pass on the CPU: a stand-in for `ncu`, and run folders to count in."""

import os
import shutil
from pathlib import Path

import pytest
from example_config import changed, experiment
from example_ncu import StandIn

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.counters import count
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.ncu import program
from dpprof.drive.run import drive_experiment
from dpprof.drive.stop import Stop
from dpprof.record.figures.results import FINISHED, Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome

HERE = Path(__file__).parent


CONFIG = experiment(
    trainer="DPSGDTrainer",
    batch_size=2,
    seq_len=16,
    device="cpu",
    passes="clean",
    measured_steps=1,
    counters="auto",
).resolve(cuda_available=False)


def counting_machine(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A machine that may count on its CPU: the rest of the path is the real one."""
    monkeypatch.setenv("PATH", f"{stand_in.place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(program, "require", lambda device: program.Ncu(str(stand_in.place / "ncu")))
    return stand_in


def oddly_named_folder(tmp_path: Path) -> RunFolder:
    """An odd name, with a percent sign, which begins a placeholder in ncu's file names."""
    return RunFolder(tmp_path / "100 % & more" / "run")


def drive(folder: RunFolder, config: ExperimentConfig = CONFIG) -> Result:
    lines: list[str] = []
    result = drive_experiment(config, folder, LocalLauncher(), 600, lines.append)
    (folder.path / "lines.txt").write_text("\n".join(lines))
    return result


def measured_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with everything but its counters, really measured."""
    folder = RunFolder(tmp_path_factory.mktemp("measured") / "run")
    result = drive(folder, changed(CONFIG, counters="off"))
    assert result.status == FINISHED
    return folder.path


def count_in(folder: RunFolder, measured: Path, config: ExperimentConfig, stop: Stop | None = None) -> Result:
    """Count in a copy of a measured folder."""
    shutil.copytree(measured, folder.path, dirs_exist_ok=True)
    folder.write_config(config)
    record = folder.read_record()
    assert record is not None
    count(config, folder, record, LocalLauncher(), 60.0, lambda line: None, stop or Stop())
    return read_result(folder)


def outcome(result: Result) -> PassOutcome:
    assert result.record is not None
    return result.record.passes["counters"]

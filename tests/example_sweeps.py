"""Sweeps of given experiments, on this machine and with the reports of the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import Sweep
from dpprof.pages.sweep_reports import write_sweep_reports


def sweep_in(runs: Path, experiments: Mapping[str, ExperimentConfig], name: str = "s", **more: Any) -> Sweep:
    """A sweep of which nothing is done."""
    drive = DriveConfig(runs_dir=str(runs))
    return Sweep(name, drive, LocalLauncher(), experiments, write_reports=write_sweep_reports, **more)

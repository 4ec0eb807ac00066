"""No campaign starts with a workload that is not there, and a check that comes to no end says so."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trap_cases import CONFIG, configured

from dpprof.config.drive import DriveConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.fit import FitConfig
from dpprof.drive.campaign import Campaign, run_campaign
from dpprof.drive.fit import Fit
from dpprof.drive.launch.in_process import InProcessLauncher
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.single import SingleRun
from dpprof.drive.sweep import Sweep
from dpprof.drive.workload_check import check_training
from dpprof.errors import ConfigError, ExperimentsFailed
from dpprof.tracking.tracker import Tracker
from dpprof.vocabulary.trainers import STANDARD

NOT_THERE = dataclasses.replace(CONFIG, workload="nosuch.module:x")
ESTIMATED = dataclasses.replace(NOT_THERE, how=EstimatingConfig())
UNTOUCHED: Any = SimpleNamespace(warn=pytest.fail)  # the terminal is not reached
Planned = Callable[[DriveConfig], Campaign]


@pytest.mark.parametrize(
    "planned",
    [
        lambda drive: SingleRun("one", drive, LocalLauncher(), NOT_THERE),
        lambda drive: Sweep("grid", drive, LocalLauncher(), {"a": NOT_THERE, "b": NOT_THERE}),
        lambda drive: Sweep("guess", drive, LocalLauncher(), {"a": ESTIMATED}),
        lambda drive: Fit("search", drive, LocalLauncher(), {"a": ESTIMATED}, FitConfig(), 1),
    ],
    ids=["profile", "sweep", "estimate", "fit"],
)
def test_nothing_starts_without_the_workloads_module(tmp_path: Path, planned: Planned) -> None:
    campaign = planned(DriveConfig(runs_dir=str(tmp_path)))
    with pytest.raises(ConfigError) as refused:
        run_campaign(campaign, Tracker(), UNTOUCHED)
    assert str(refused.value) == (
        "workload: got 'nosuch.module:x', there is no module nosuch: run from its folder, "
        "or put that on PYTHONPATH"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_whose_workload_breaks_the_contract_does_not_start(tmp_path: Path) -> None:
    broken = {"a": configured("no_batches", STANDARD)}
    sweep = Sweep("grid", DriveConfig(runs_dir=str(tmp_path)), InProcessLauncher(), broken)
    with pytest.raises(ConfigError, match="it returned Model, int, function"):
        run_campaign(sweep, Tracker(), UNTOUCHED)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_which_all_is_kept_checks_nothing(tmp_path: Path) -> None:
    sweep = Sweep("grid", DriveConfig(runs_dir=str(tmp_path)), LocalLauncher(), {"a": NOT_THERE})
    assert sweep.experiment_to_check() == NOT_THERE
    sweep.kept = {"a": UNTOUCHED}
    assert sweep.experiment_to_check() is None


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text("import time\ndef factory(config):\n    time.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    endless = dataclasses.replace(CONFIG, workload="endless:factory")
    with pytest.raises(ExperimentsFailed, match="came to no end: stopped after timeout_s="):
        check_training([endless], LocalLauncher(), 0.5, lambda line: None)

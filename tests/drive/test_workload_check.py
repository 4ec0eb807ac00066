"""No campaign starts with a workload that is not there, and a check that comes to no end says so."""

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from example_sweeps import sweep_in
from trap_cases import CONFIG, configured

from dpprof.config.drive import DriveConfig
from dpprof.config.entry_points import FitConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.drive.campaign import Campaign, run_campaign
from dpprof.drive.fit import Fit
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.in_process import InProcessLauncher
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import SingleRun
from dpprof.drive.workload_check import check_training, refuse_missing_module
from dpprof.errors import ConfigError, ExperimentsFailed
from dpprof.pages.fit import write_fit
from dpprof.pages.run_reports import write_run_reports
from dpprof.tracking.tracker import Tracker
from dpprof.vocabulary.trainers import STANDARD
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

NOT_THERE = dataclasses.replace(CONFIG, workload="nosuch.module:x")
ESTIMATED = dataclasses.replace(NOT_THERE, how=EstimatingConfig())
UNTOUCHED: Any = SimpleNamespace(warn=pytest.fail)  # the terminal is not reached
Planned = Callable[[DriveConfig], Campaign]


@pytest.mark.parametrize(
    "planned",
    [
        lambda drive: SingleRun("one", drive, LocalLauncher(), NOT_THERE),
        lambda drive: sweep_in(Path(drive.runs_dir), {"a": NOT_THERE, "b": NOT_THERE}),
        lambda drive: sweep_in(Path(drive.runs_dir), {"a": ESTIMATED}),
        lambda drive: Fit("search", drive, LocalLauncher(), {"a": ESTIMATED}, FitConfig(), 1, write_fit),
    ],
    ids=["profile", "sweep", "estimate", "fit"],
)
def test_nothing_starts_without_the_workloads_module(tmp_path: Path, planned: Planned) -> None:
    campaign = planned(DriveConfig(runs_dir=str(tmp_path)))
    with pytest.raises(ConfigError) as refused:
        run_campaign(campaign, Tracker(), UNTOUCHED, write_run_reports)
    assert "got 'nosuch.module:x', there is no module nosuch" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_whose_workload_breaks_the_contract_does_not_start(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path, {"a": configured("no_batches", STANDARD)})
    sweep.launcher = InProcessLauncher()
    with pytest.raises(ConfigError, match="it returned Model, int, function"):
        run_campaign(sweep, Tracker(), UNTOUCHED, write_run_reports)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_which_all_is_kept_checks_nothing(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path, {"a": NOT_THERE})
    assert sweep.experiment_to_check() == NOT_THERE
    sweep.kept = {"a": UNTOUCHED}
    assert sweep.experiment_to_check() is None


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text("import time\ndef factory(config):\n    time.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    endless = dataclasses.replace(CONFIG, workload="endless:factory")
    with pytest.raises(ExperimentsFailed, match="came to no end: stopped after timeout_s="):
        check_training([endless], Runner(LocalLauncher(), 0.5, lambda line: None))


@pytest.mark.parametrize("code", [0, 1])
def test_a_check_that_the_workload_ends_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "leaving.py").write_text(f"import os\ndef factory(config):\n    os._exit({code})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    leaving = dataclasses.replace(CONFIG, workload="leaving:factory")
    early = f'exit code {code} before it was done, as os._exit\\({code}\\) does in "one step, watched"'
    with pytest.raises(ExperimentsFailed, match=early):
        check_training([leaving], Runner(LocalLauncher(), 60, lambda line: None))


def test_a_missing_module_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no module nosuch: run from"):
        refuse_missing_module("nosuch.a:b", LocalLauncher())


@pytest.mark.parametrize("workload", ["unimportable:f", "package.deep:f", "spread.deep:f", BUILT_IN_WORKLOAD])
def test_a_module_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unimportable.py").write_text("raise SystemExit")
    Path("package").mkdir()
    Path("package", "__init__.py").write_text("raise SystemExit")
    Path("spread").mkdir()
    refuse_missing_module(workload, LocalLauncher())
    assert not {"unimportable", "package", "spread"} & set(sys.modules)


def test_another_machine_may_have_it() -> None:
    elsewhere: Any = SimpleNamespace(machine=object())
    refuse_missing_module("nosuch:f", elsewhere)

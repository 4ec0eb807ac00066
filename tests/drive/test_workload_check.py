"""No campaign starts with a workload that is not there, and a check that comes to no end says so."""

import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import refusal
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
from dpprof.errors import ExperimentsFailed
from dpprof.pages.fit import write_fit
from dpprof.pages.run_reports import write_run_reports
from dpprof.tracking.tracker import Tracker
from dpprof.vocabulary.trainers import STANDARD
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

NOT_THERE = dataclasses.replace(CONFIG, workload="nosuch.module:x")
ESTIMATED = dataclasses.replace(NOT_THERE, how=EstimatingConfig())
UNTOUCHED: Any = SimpleNamespace(warn=pytest.fail)  # the terminal is not reached


def test_nothing_starts_without_the_workloads_module_or_where_it_breaks_the_contract(tmp_path: Path) -> None:
    drive, launcher = DriveConfig(runs_dir=str(tmp_path)), LocalLauncher()
    broken = sweep_in(tmp_path, {"a": configured("no_batches", STANDARD)})
    broken.launcher = InProcessLauncher()
    missing = "got 'nosuch.module:x', there is no module nosuch"
    campaigns: list[tuple[Campaign, str]] = [
        (SingleRun("one", drive, launcher, NOT_THERE), missing),
        (sweep_in(tmp_path, {"a": NOT_THERE, "b": NOT_THERE}), missing),
        (sweep_in(tmp_path, {"a": ESTIMATED}), missing),
        (Fit("search", drive, launcher, {"a": ESTIMATED}, FitConfig(), 1, write_fit), missing),
        (broken, "it returned Model, int, function"),
    ]
    for campaign, said in campaigns:
        assert said in refusal(run_campaign, campaign, Tracker(), UNTOUCHED, write_run_reports)
        assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_which_all_is_kept_checks_nothing(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path, {"a": NOT_THERE})
    assert sweep.experiment_to_check() == NOT_THERE
    sweep.kept = {"a": UNTOUCHED}
    assert sweep.experiment_to_check() is None


EARLY = r'exit code {0} before it was done, as os._exit\({0}\) does in "one step, watched"'


@pytest.mark.parametrize(
    ("program", "timeout_s", "said"),
    [
        ("import time; time.sleep(600)", 0.5, "came to no end: stopped after timeout_s="),
        ("import os; os._exit(0)", 60, EARLY.format(0)),
        ("import os; os._exit(1)", 60, EARLY.format(1)),
    ],
)
def test_a_check_that_comes_to_no_end_or_that_the_workload_ends_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float, said: str
) -> None:
    (tmp_path / "ending.py").write_text(f"def factory(config):\n    {program}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    ending = dataclasses.replace(CONFIG, workload="ending:factory")
    with pytest.raises(ExperimentsFailed, match=said):
        check_training([ending], Runner(LocalLauncher(), timeout_s, lambda line: None))


def test_a_missing_module_is_refused() -> None:
    said = refusal(refuse_missing_module, "nosuch.a:b", LocalLauncher())
    assert "there is no module nosuch: run from" in said


@pytest.mark.parametrize("workload", ["unimportable:f", "package.deep:f", "spread.deep:f", BUILT_IN_WORKLOAD])
def test_a_module_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("package", "spread"):
        Path(folder).mkdir()
    for module in ("unimportable.py", "package/__init__.py"):
        Path(module).write_text("raise SystemExit")
    refuse_missing_module(workload, LocalLauncher())
    assert not {"unimportable", "package", "spread"} & set(sys.modules)


def test_another_machine_may_have_it() -> None:
    elsewhere: Any = SimpleNamespace(machine=object())
    refuse_missing_module("nosuch:f", elsewhere)

"""Who gets which folder: campaigns that begin in the same second, with the same name, or on earlier ones."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from conftest import call_dpprof, errors_of, refusal
from example_sweeps import sweep_in

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.claim import claimed
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import SingleRun
from dpprof.errors import ConfigError

CONFIG = ExperimentConfig()


def test_many_at_once_get_a_folder_each(tmp_path: Path) -> None:
    def claim(_: int) -> tuple[str, bool]:
        campaign = SingleRun("", DriveConfig(runs_dir=str(tmp_path)), LocalLauncher(), CONFIG)
        with claimed(campaign, "profile"):
            path = campaign.folder.path
            (path / "owner").touch(exist_ok=False)
            time.sleep(0.05)
        return campaign.name, path.is_dir()

    with ThreadPoolExecutor(12) as pool:
        claims = list(pool.map(claim, range(12)))
    assert len({name for name, _ in claims}) == 12
    assert all(is_kept for _, is_kept in claims)


def test_a_folder_of_which_nothing_came_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="refused"), claimed(sweep_in(tmp_path, {"a": CONFIG}), "sweep"):
        raise ConfigError("refused")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    def claim(resume: bool = False) -> AbstractContextManager[None]:
        return claimed(sweep_in(tmp_path, {"a": CONFIG}), "sweep", resume=resume)

    with claim():
        (tmp_path / "s" / "kept").touch()
        for resume in (False, True):
            assert f"s is in use by process {os.getpid()} on " in refusal(claim(resume).__enter__)
    assert "got 's', allowed: a new name, or resume=true" in refusal(claim().__enter__)
    with claim(resume=True):
        pass


FIT = ["fit", "--device-memory-gib", "1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "--sweep-name", "no", "--resume", "true"], "got 'no', allowed: with resume=true"),
        ([*FIT, "--workload", "json:no"], "workload: got 'json:no'"),
        ([*FIT, "--sweep-name", "taken"], "got 'taken', allowed: a new name\n"),
    ],
    ids=["a sweep that never was", "a workload that is not there", "a search cannot be resumed"],
)
def test_what_is_refused_leaves_no_folder(tmp_path: Path, arguments: list[str], said: str) -> None:
    taken = tmp_path / "runs" / "taken"
    taken.mkdir(parents=True)
    assert said in errors_of(call_dpprof(tmp_path, *arguments))
    assert list(taken.parent.iterdir()) == [taken]
    assert not (tmp_path / "mlflow.db").exists()

from dataclasses import replace as replace_fields
from pathlib import Path

import pytest

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.run import beside, left_over, replace
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link

EARLIER = ExperimentConfig(lr=0.1)
NEW = ExperimentConfig(lr=0.2)
LINK = Link("0123", "sqlite:///x.db", True, "0a")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder that was logged, and its experiment done again."""
    folder = RunFolder(tmp_path / "größe 1.again")
    folder.create(EARLIER)
    LINK.write(folder.mlflow)
    beside(folder).create(NEW)
    return folder


def test_replacing_remembers_the_run_to_replace_in_mlflow(folder: RunFolder) -> None:
    replace(folder)
    assert folder.read_config() == NEW
    assert Link.read(folder.mlflow) == replace_fields(LINK, complete=False)
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.name]


def test_what_is_done_again_is_no_run_of_its_own(folder: RunFolder) -> None:
    assert [run.name for run in SweepFolder(folder.path.parent).runs()] == [folder.name]


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_replacing_that_was_killed_is_brought_to_its_end(folder: RunFolder, renamed: int) -> None:
    folder.path.rename(folder.path.with_name(f".{folder.name}.before"))
    if renamed == 2:
        beside(folder).path.rename(folder.path)
    assert list(left_over(SweepFolder(folder.path.parent))) == []
    assert folder.read_config() == NEW
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.name]


def test_what_was_being_done_when_dpprof_was_killed_is_found(folder: RunFolder) -> None:
    (found,) = left_over(SweepFolder(folder.path.parent))
    assert found.path == folder.path
    assert folder.read_config() == EARLIER

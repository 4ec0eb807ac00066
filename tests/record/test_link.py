"""The file that says which run in MLflow holds a folder."""

import json
from pathlib import Path

import pytest

from dpprof.drive.run import mark_unlogged
from dpprof.record.folder import RunFolder
from dpprof.record.link import Link


def test_a_password_in_a_link_of_an_earlier_version_is_not_copied(tmp_path: Path) -> None:
    earlier, into = RunFolder(tmp_path), RunFolder(tmp_path / "again")
    into.path.mkdir()
    link = {"run_id": "x", "tracking_uri": "http://me:hunter2@host:5000", "complete": True}
    earlier.mlflow.write_text(json.dumps(link))
    mark_unlogged(earlier, into)
    kept = Link.read(into.mlflow)
    assert kept == Link("x", "http://host:5000", complete=False)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_link_is_still_there_when_the_experiment_is_done_again(tmp_path: Path, text: str) -> None:
    """So that it is named when the folder is logged."""
    earlier, into = RunFolder(tmp_path), RunFolder(tmp_path / "again")
    into.path.mkdir()
    earlier.mlflow.write_text(text)
    mark_unlogged(earlier, earlier)
    mark_unlogged(earlier, into)
    assert earlier.mlflow.read_text() == into.mlflow.read_text() == text

"""The file that says which run in MLflow holds a folder."""

import dataclasses
import json
from pathlib import Path

import pytest
from damages import damaged

from dpprof.errors import DpprofError
from dpprof.record.again import mark_unlogged
from dpprof.record.folder import RunFolder
from dpprof.record.link import Link


def test_a_damaged_link_is_named_or_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.json"
    assert Link.read(path) is None
    dataclasses.replace(Link.new(tmp_path, "sqlite:///x.db"), run_id="0123").write(path)
    told = []
    for _, content in damaged(path):
        path.write_bytes(content)
        try:
            found = Link.read(path)
        except DpprofError as error:
            told.append(str(error))
            continue
        assert found is not None
        assert json.dumps(dataclasses.asdict(found)) == content.decode()
    assert len(told) > 40
    assert all(text.startswith(f"{path} cannot be read: ") for text in told)


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

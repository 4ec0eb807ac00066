"""The file that says which run in MLflow holds a folder."""

from pathlib import Path

import pytest

from dpprof.drive.run import mark_unlogged
from dpprof.record.folder import RunFolder


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_link_is_still_there_when_the_experiment_is_done_again(tmp_path: Path, text: str) -> None:
    """So that it is named when the folder is logged."""
    earlier, into = RunFolder(tmp_path), RunFolder(tmp_path / "again")
    into.path.mkdir()
    earlier.mlflow.write_text(text)
    mark_unlogged(earlier, earlier)
    mark_unlogged(earlier, into)
    assert earlier.mlflow.read_text() == into.mlflow.read_text() == text

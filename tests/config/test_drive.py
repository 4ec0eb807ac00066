from pathlib import Path

import pytest

from dpprof.config.drive import DriveConfig
from dpprof.errors import ConfigError


def test_check_writable_makes_the_folder_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    runs = tmp_path / "new" / "runs"
    DriveConfig(runs_dir=str(runs)).check_writable()
    assert list(runs.iterdir()) == []


def test_check_writable_refuses_a_place_under_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError) as refused:
        DriveConfig(runs_dir=str(file / "runs")).check_writable()
    message = str(refused.value)
    assert message.startswith(f"runs_dir: got '{file / 'runs'}', allowed: a folder that can be written")
    assert "Not a directory" in message

"""In a terminal something shows before the heavy imports, and is gone once there is more to say."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

from dpprof.cli.streams import waiting


def in_a_terminal(folder: Path, *arguments: str) -> str:
    """What a terminal gets of a command."""
    ours, theirs = pty.openpty()
    env = environment(folder) | {"TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "dpprof", *arguments]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            text += part
    os.close(ours)
    return text.decode()


def test_a_terminal_sees_a_spinner_that_an_error_takes_away(tmp_path: Path) -> None:
    text = in_a_terminal(tmp_path, "sweep", "--trainers", "Adam")
    assert "getting ready" in text
    assert "\x1b[?25h" in text, "the cursor is back"
    assert "allowed: standard (StandardTrainer)" in text.rstrip().splitlines()[-1], "the error is last"
    assert "dpprof: trainers: got 'Adam'" in text.rpartition("\x1b[2K")[2]


def test_a_file_sees_none(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("getting ready"):
        pass
    assert capsys.readouterr().out == ""


def test_an_export_shows_that_it_works(tmp_path: Path) -> None:
    text = in_a_terminal(tmp_path, "export", "mine", "--format", "xml")
    assert "exporting" in text
    assert "dpprof: format: got 'xml'" in text.rpartition("\x1b[2K")[2]

"""`--output`: what it writes, and what it must not replace."""

import os
from pathlib import Path
from threading import Thread

import pytest
from conftest import ROOT, Run, fine

SOURCE = str(ROOT / "docs" / "results" / "small_cpu.json")


def test_a_link_leads_to_the_file_that_is_replaced(called: Run, tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to("target.csv")
    assert called("export", SOURCE, "--output", "link.csv").returncode == 0
    assert link.is_symlink()
    assert target.read_text() == called("export", SOURCE).stdout


def test_a_pipe_is_written_and_stays(called: Run, tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert called("export", SOURCE, "--output", "pipe").returncode == 0
    reader.join(timeout=30)
    assert pipe.is_fifo()
    assert read == [called("export", SOURCE).stdout]


@pytest.mark.parametrize("command", ["compare", "export"])
def test_a_dash_is_standard_output(called: Run, tmp_path: Path, command: str) -> None:
    """The file, and nothing else; what is told beside it goes to standard error."""
    assert called(command, SOURCE, "--output", "page").returncode == 0
    ended = fine(called(command, SOURCE, "--output", "-"))
    assert ended.stdout == (tmp_path / "page").read_text()
    assert ("Steps follow" in ended.stderr) == (command == "compare")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "got an empty text, allowed: a file, or - for standard output"),
        (".", "got '.', allowed: a file that can be written (Is a directory)"),
        ("no/file", "got 'no/file', allowed: a file that can be written (No such file or directory)"),
    ],
)
def test_what_is_no_file_is_refused_before_anything_is_read(called: Run, output: str, words: str) -> None:
    for command in ("compare", "export", "roofline"):
        ended = called(command, "nosuch", "--output", output)
        assert (ended.returncode, ended.stderr) == (2, f"dpprof: output: {words}\n")
    assert called("summarize", "--output", output).stderr == f"dpprof: output: {words}\n"

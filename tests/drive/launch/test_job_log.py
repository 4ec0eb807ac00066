import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from example_jobs import is_alive, job, ran

from dpprof.drive.launch.job_log import AT_ONCE, CUT, KEPT, LARGEST, LONGEST_LINE, JobLog
from dpprof.drive.launch.local import LocalLauncher

# Writes without a line's end, as fast as it can, after a first line.
FLOOD = "import os, time; print('first'); time.sleep(0.8)\nwhile True: os.write(1, b'x' * 2**20)"
# Says something odd, then leaves a process in a session of its own behind, which has no parent then.
ORPHAN = """
import os, subprocess, sys
os.write(1, b"\\xff\\x1b[31m one\\r\\ntwo\\rthree")
sleep = "import time; time.sleep(600)"
later = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}, sys.argv[1]])"
subprocess.run([sys.executable, "-c", later, *sys.argv[1:]], start_new_session=True)
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[JobLog]:
    opened = JobLog(tmp_path / "run.log")
    yield opened
    opened.close()


def test_lines_come_whole_and_once(log: JobLog) -> None:
    os.write(log.descriptor, b"one\ntw")
    assert log.new_lines() == ["one"]
    os.write(log.descriptor, b"o\r\n  \xe2\x82")
    assert log.new_lines() == ["two"]
    os.write(log.descriptor, b"\xac\xff\nfour")
    assert log.new_lines() == ["€\ufffd"]
    assert log.new_lines() == []
    assert log.last_lines() == ["four"]


def test_what_an_earlier_job_left_in_its_place_is_removed(tmp_path: Path) -> None:
    path, other = tmp_path / "run.log", tmp_path / "other"
    other.write_text("of somebody else")
    path.symlink_to(other)
    JobLog(path).close()
    assert (path.is_symlink(), other.read_text()) == (False, "of somebody else")


def test_a_log_that_loses_its_name_or_content_is_followed(log: JobLog, tmp_path: Path) -> None:
    os.write(log.descriptor, b"one\n")
    (tmp_path / "run.log").unlink()
    assert log.new_lines() == ["one"]
    os.ftruncate(log.descriptor, 0)
    os.write(log.descriptor, b"2\n")
    assert log.new_lines() == ["2"]


def test_a_line_without_end_is_cut(log: JobLog) -> None:
    for _ in range(3):
        os.write(log.descriptor, b"x" * (AT_ONCE // 2))
        assert log.new_lines() == []
    os.write(log.descriptor, b"\nnext\n")
    assert log.new_lines() == ["x" * LONGEST_LINE, "next"]


def test_a_log_that_grows_too_large_keeps_its_beginning_and_its_end(log: JobLog, tmp_path: Path) -> None:
    os.write(log.descriptor, b"begin\n")
    assert log.new_lines() == ["begin"]
    for _ in range(LARGEST // 2**24 + 1):
        os.write(log.descriptor, b"x" * 2**24)
    os.write(log.descriptor, b"\nend\n")
    assert log.new_lines()[-1] == "end"
    kept = (tmp_path / "run.log").read_bytes()
    assert len(kept) == 2 * KEPT + len(CUT)
    assert (kept[:6], kept[-5:]) == (b"begin\n", b"\nend\n")
    subprocess.run([sys.executable, "-c", "print('after')"], stdout=log.descriptor, check=True)
    assert log.new_lines() == ["after"]
    assert (tmp_path / "run.log").read_bytes() == kept + b"after\n"


def test_a_flooded_log_neither_fills_the_memory_nor_outlasts_the_time(tmp_path: Path) -> None:
    before, began = psutil.Process().memory_info().rss, time.monotonic()
    flood = replace(job(tmp_path, FLOOD), timeout_s=2)
    ended, lines = ran(LocalLauncher(), flood)
    assert ended.timed_out
    assert time.monotonic() - began < 30
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    assert lines[0] == "first"
    assert len(max(lines, key=len)) <= LONGEST_LINE
    assert flood.log.stat().st_size <= LARGEST


def test_odd_bytes_are_lines_and_what_left_the_session_is_ended(tmp_path: Path) -> None:
    orphan = job(tmp_path, ORPHAN)
    ended, lines = ran(LocalLauncher(), replace(orphan, command=[*orphan.command, str(tmp_path)]))
    assert (ended.code, lines) == (0, ["\ufffd\x1b[31m one", "two", "three"])
    left = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in (p.info["cmdline"] or [])]
    assert not any(map(is_alive, left))

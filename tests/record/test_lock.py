import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conftest import refusal
from example_runs import known

from dpprof.errors import ConfigError
from dpprof.record.lock import LOCK, locked


def test_whoever_comes_second_is_told_who_has_it(tmp_path: Path) -> None:
    with locked(tmp_path):
        said = refusal(locked(tmp_path).__enter__)
        assert said.startswith(f"{tmp_path} is in use by process {os.getpid()} on ")
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass


HOLDING = """
import sys, time
from pathlib import Path
from dpprof.record.lock import locked
with locked(Path(sys.argv[1])):
    print('held', flush=True)
    time.sleep(60)
"""


def test_a_killed_process_has_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        known(holder.stdout).readline()
        assert f"in use by process {holder.pid} on " in refusal(locked(tmp_path).__enter__)
        holder.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path):
        pass


def test_never_two_at_a_time(tmp_path: Path) -> None:
    """Though everyone removes the file at the end, and others have it open then."""
    inside, most, entered = 0, 0, 0

    def enter_often(_: int) -> None:
        nonlocal inside, most, entered
        while entered < 200:
            try:
                with locked(tmp_path):
                    inside += 1
                    most = max(most, inside)
                    entered += 1
                    time.sleep(0)
                    inside -= 1
            except ConfigError:
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter_often, range(4)))
    assert most == 1


def test_a_folder_that_was_deleted_meanwhile_leaves_another_ones_lock_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with locked(folder):
        (folder / LOCK).unlink()
        folder.rmdir()
        folder.mkdir()
        (folder / LOCK).write_text("another one's")
    assert (folder / LOCK).read_text() == "another one's"

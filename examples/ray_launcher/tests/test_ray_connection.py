"""Addresses that lead to no Ray cluster are refused by name, before anything is started."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import call_dpprof

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.launcher import make_launcher
from dpprof.errors import ConfigError

ALLOWED = "allowed: auto, local, or HOST:PORT of a Ray cluster's head"


@pytest.fixture
def listener() -> Iterator[str]:
    """An address where something listens, and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def refusal(address: str) -> str:
    with pytest.raises(ConfigError) as refused:
        make_launcher(DriveConfig(launcher="ray", options={"ray_address": address}))
    return str(refused.value)


@pytest.mark.parametrize(
    "address", ["nonsense", "ray://127.0.0.1:10001", "127.0.0.1", "127.0.0.1:99999", ":1"]
)
def test_what_is_no_address(address: str) -> None:
    assert refusal(address) == f"ray_address: got {address!r}, {ALLOWED}"


def test_where_nobody_listens(listener: str) -> None:
    host, _, _ = listener.partition(":")
    assert refusal(f"{host}:1") == (
        f"ray_address: got '{host}:1', {ALLOWED} (nobody answers there: Connection refused)"
    )


def test_where_something_else_listens_the_wait_is_bounded(listener: str) -> None:
    """In a process of its own, which goes away with a thread of Ray's that still tries."""
    program = f"""
from ray_launcher import connection
from dpprof.errors import ConfigError
from dpprof.process import end_process
connection._CONNECT_S = 2.0
try:
    connection.connect({listener!r})
except ConfigError as error:
    print(error)
    end_process(2)
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert f"got '{listener}', which did not answer as a Ray cluster within 2 s" in ended.stdout


def test_another_dpprof_in_the_working_directory_which_workers_would_run(tmp_path: Path) -> None:
    found = tmp_path / "dpprof" / "__init__.py"
    found.parent.mkdir()
    found.write_text("")
    ended = call_dpprof(tmp_path, "profile", "--launcher", "ray", "--ray-address", "local")
    assert ended.returncode == 2
    assert ended.stderr == f"dpprof: launcher: ray would run {found}: start dpprof in another folder\n"

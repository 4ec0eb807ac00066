"""Addresses that lead to no Ray cluster are refused by name, before anything is started."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.launcher import make_launcher
from dpprof.errors import ConfigError
from dpprof.vocabulary.launchers import LAUNCHERS, LauncherInfo

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
from dpprof.drive.launch.on_ray import connection
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


def test_a_launcher_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    info = LauncherInfo("ray", "", "no.such:Launcher", package="no_such_package", extra="ray")
    monkeypatch.setitem(LAUNCHERS, "ray", info)
    with pytest.raises(ConfigError) as refused:
        make_launcher(DriveConfig(launcher="ray"))
    assert str(refused.value) == (
        "launcher: ray needs no_such_package, which is not installed: pip install 'dpprof[ray]'"
    )

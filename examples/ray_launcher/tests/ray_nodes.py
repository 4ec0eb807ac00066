"""A Ray cluster on this machine: nodes with loopback addresses of their own, started and ended one by one."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from dpprof.drive.launch.ranks import free_port

_STARTS_RAY = ["-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
_SMALL = ["--object-store-memory", str(80 * 2**20), "--disable-usage-stats"]
_HEAD = "127.0.0.2"
_STARTING_S, _RUNNING_S = 90.0, 120.0


class Node:
    """The processes of a node. It runs in a folder of its own, and imports nothing from the tests. Ray cannot
    start workers by an interpreter whose path has a space, so it gets a path without one.
    """

    def __init__(self, place: Path, address: str, *options: str, **variables: str) -> None:
        self.address = address
        self._log = place / f"{address}.log"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        prefix = place / "environment"
        if not prefix.exists():
            prefix.symlink_to(sys.prefix)
        python = prefix / Path(sys.executable).relative_to(sys.prefix)
        with open(self._log, "w") as log:
            self.process = subprocess.Popen(
                [str(python), *_STARTS_RAY, f"--node-ip-address={address}", *_SMALL, *options],
                cwd=place,
                env=kept | variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def descendants(self) -> list[psutil.Process]:
        """All that it has started."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def processes_with(self, word: str) -> list[psutil.Process]:
        """Those whose command lines have a word that ends like this."""
        found = []
        for process in self.descendants:
            with contextlib.suppress(psutil.Error):
                is_it = any(part.endswith(word) for part in process.cmdline())
                if is_it and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def lose(self) -> None:
        """End everything at once, as when a machine loses its power."""
        descendants = self.descendants
        for number in (signal.SIGSTOP, signal.SIGKILL):
            self.process.send_signal(number)
            for process in descendants:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        self.process.wait()

    @property
    def said(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")


class Cluster:
    """A head at 127.0.0.2, and the nodes that are added to it.

    Their folder has a short name: the paths of Ray's sockets may have 107 bytes.
    """

    def __init__(self, *options: str) -> None:
        self._folder = TemporaryDirectory()
        self._place = place = Path(self._folder.name)
        port, client_port = (free_port(_HEAD) for _ in range(2))
        self.address = f"{_HEAD}:{port}"
        ports = [f"--port={port}", f"--ray-client-server-port={client_port}"]
        head = ["--head", *ports, "--include-dashboard=false", f"--temp-dir={place}"]
        self.nodes = [Node(place, _HEAD, *head, *options)]

    def add(self, *options: str, **variables: str) -> Node:
        """Another node, as soon as the head listens."""
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + _STARTING_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                break
            assert self.nodes[0].process.poll() is None, self.nodes[0].said
            assert time.monotonic() < deadline, self.nodes[0].said
            time.sleep(0.1)
        address = f"127.0.0.{2 + len(self.nodes)}"
        self.nodes.append(Node(self._place, address, f"--address={self.address}", *options, **variables))
        return self.nodes[-1]

    def wait_until_up(self) -> None:
        """Until every node takes part; this process must be connected."""
        from ray_launcher.placement import nodes

        running = {node.address for node in self.nodes if node.process.poll() is None}
        deadline = time.monotonic() + _STARTING_S
        while {node.address for node in nodes()} != running:
            assert time.monotonic() < deadline, [node.said for node in self.nodes]
            time.sleep(0.1)

    def stop(self) -> None:
        """End all of it."""
        for node in reversed(self.nodes):
            node.lose()
        self._folder.cleanup()


def wait_for(word: str, *nodes: Node) -> psutil.Process:
    """The first process of any of these nodes that has a word in its command line."""
    deadline = time.monotonic() + _RUNNING_S
    while not (found := [process for node in nodes for process in node.processes_with(word)]):
        assert time.monotonic() < deadline, f"{word} never ran"
        time.sleep(0.02)
    return found[0]

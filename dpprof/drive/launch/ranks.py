"""Ranks of one job on this machine, as `torchrun` starts them, but with a log and exit code each."""

import ipaddress
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import Exit, Job

# How long the other ranks have to notice a failed one and leave their answers.
OTHERS_S = 5.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class HostRanks:
    """Ranks that this machine runs: `count` of `world_size`, from `first` on.

    All meet at `address` and `port`, on rank 0's machine. gloo uses the network `interface`, if given.
    """

    first: int
    count: int
    world_size: int
    address: str
    port: int
    interface: str = ""

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables that `torchrun` sets for a rank."""
        told = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank - self.first),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.count),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }
        if self.interface:
            told["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", self.interface)
        if "OMP_NUM_THREADS" not in os.environ:
            told["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // self.count))
        return told


def all_here(num_ranks: int) -> HostRanks:
    """Return all ranks, on this machine."""
    return HostRanks(0, num_ranks, num_ranks, LOOPBACK, free_port(LOOPBACK), interface_of(LOOPBACK))


def spread(num_ranks: int, num_nodes: int) -> tuple[int, ...]:
    """Return the number of ranks per node, as even as possible."""
    return tuple(len(range(node, num_ranks, num_nodes)) for node in range(num_nodes))


def interface_of(address: str) -> str:
    """Return the name of this machine's network interface with an address; "" if unknown."""
    if ipaddress.ip_address(address).is_loopback:
        return "lo"
    found = (name for name, held in psutil.net_if_addrs().items() if any(address == a.address for a in held))
    return next(found, "")


def free_port(address: str) -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


class Ranks:
    """Processes of a job's ranks on this machine. When one fails, the others are ended too."""

    def __init__(self, job: Job, on_line: Callable[[str], None], here: HostRanks) -> None:
        self._children: list[Child] = []
        self._end_others_at: float | None = None
        self._exit: Exit | None = None
        try:
            for rank in range(here.first, here.first + here.count):
                job.of_rank(rank).log.parent.mkdir(parents=True, exist_ok=True)
                child = Child(job.of_rank(rank), on_line, environment=here.variables(rank))
                self._children.append(child)
        except BaseException:
            self.cancel()
            while any(child.poll() is None for child in self._children):
                time.sleep(0.05)
            raise

    def poll(self) -> Exit | None:
        """Return how the ranks ended, if all have."""
        if self._exit is not None:
            return self._exit
        ended = [child.poll() for child in self._children]
        exits = [one for one in ended if one is not None]
        if len(exits) == len(ended):
            self._exit = Exit.of_ranks(exits)
            return self._exit
        if self._end_others_at is None and any(one.code for one in exits):
            self._end_others_at = time.monotonic() + OTHERS_S
        if self._end_others_at is not None and time.monotonic() > self._end_others_at:
            self.follow()
        return None

    def cancel(self) -> None:
        """Ask all ranks to end."""
        for child in self._children:
            child.cancel()

    def follow(self) -> None:
        """Ask the remaining ranks to end because another has failed."""
        for child in self._children:
            child.follow()

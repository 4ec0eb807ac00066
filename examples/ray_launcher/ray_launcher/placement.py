"""Nodes of the cluster, and the placement group of each job."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dpprof.drive.launch.job import Job
from dpprof.drive.launch.ranks import spread
from dpprof.errors import DpprofError


class NoNodes(DpprofError):
    """The cluster as it is now can never run a job."""


@dataclass(frozen=True)
class Node:
    """Live node with its total resources."""

    node_id: str
    address: str
    num_cpus: float
    num_gpus: int


def nodes() -> list[Node]:
    """Return all live nodes."""
    return [
        Node(
            node["NodeID"],
            node["NodeManagerAddress"],
            node["Resources"].get("CPU", 0.0),
            int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


@dataclass
class Placement:
    """Resources of a job: bundle `i` is for `counts[i]` ranks (0: no rank), on `nodes[i]` if not None."""

    bundles: list[dict[str, float]]
    counts: tuple[int, ...]
    nodes: tuple[Node | None, ...]
    group: PlacementGroup = field(init=False)

    def __post_init__(self) -> None:
        self.group = placement_group(self.bundles, strategy="STRICT_SPREAD")

    def options(self, place: int) -> dict[str, Any]:
        """Return Ray's options for a task that takes a whole bundle."""
        bundle = self.bundles[place]
        return {
            "num_cpus": bundle["CPU"],
            "num_gpus": bundle.get("GPU", 0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, place),
        }


class Placer:
    """Chooses the nodes of jobs.

    GPU jobs go where Ray finds enough free GPUs. Measured CPU jobs get whole nodes, if possible one per rank.
    Any other job takes one core.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[str] = set()
        self._lost: set[str] = set()

    def slots_for(self, job: Job) -> int:
        """Return how many such jobs can run in parallel."""
        if job.num_gpus:
            return max(1, sum(node.num_gpus for node in nodes()) // job.num_gpus)
        if not job.is_measured:
            return max(1, int(sum(node.num_cpus for node in nodes())))
        num_nodes = max(1, len(self._with_processors()))
        return num_nodes // min(max(1, job.num_ranks), num_nodes)

    def place(self, job: Job) -> Placement | None:
        """Choose where a job goes; None while it must wait for this process's others. Raises NoNodes."""
        if job.num_gpus:
            return _on_gpus(job)
        if not job.is_measured:
            return Placement([{"CPU": 1}], (job.num_ranks,), (None,))
        able = self._with_processors()
        if not able:
            raise NoNodes("the Ray cluster has no node with a CPU: with --num-cpus 0 a node runs nothing")
        wanted = min(max(1, job.num_ranks), len(able))
        with self._lock:
            free = tuple(node for node in able if node.node_id not in self._taken)[:wanted]
            if len(free) < wanted:
                return None
            self._taken.update(node.node_id for node in free)
        bundles = [{"CPU": node.num_cpus, f"node:{node.address}": 0.001} for node in free]
        return Placement(bundles, spread(job.num_ranks, wanted), free)

    def release(self, placement: Placement) -> None:
        """Free a job's resources, and end what may still run there."""
        with self._lock:
            self._taken.difference_update(node.node_id for node in placement.nodes if node is not None)
        remove_placement_group(placement.group)

    def lose(self, node_id: str) -> None:
        """Stop using a lost node, which Ray itself may still list for a while."""
        self._lost.add(node_id)

    def _with_processors(self) -> list[Node]:
        return [node for node in nodes() if node.num_cpus >= 1 and node.node_id not in self._lost]


def _on_gpus(job: Job) -> Placement:
    """Place a job on one node if any has enough GPUs, else on as few as possible."""
    by_gpus = sorted((node.num_gpus for node in nodes()), reverse=True)
    if sum(by_gpus) < job.num_gpus:
        raise NoNodes(f"it needs {job.num_gpus} GPUs, and the Ray cluster has {sum(by_gpus)}")
    gpus: list[int] = []
    for num_gpus in by_gpus:
        if left := job.num_gpus - sum(gpus):
            gpus.append(min(num_gpus, left))
    bundles = [{"GPU": float(count), "CPU": 1.0} for count in gpus]
    return Placement(bundles, tuple(gpus) if job.num_ranks else (0,), (None,) * len(gpus))

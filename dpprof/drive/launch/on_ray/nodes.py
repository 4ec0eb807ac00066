"""The nodes of the cluster, and which of them run what."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from dpprof.drive.launch.job import Job
from dpprof.errors import DpprofError


class NoNodes(DpprofError):
    """The cluster can never run a job, as it is now."""


@dataclass(frozen=True)
class Node:
    """A node that is alive, and what it has in all."""

    id: str
    address: str
    num_cpus: float
    num_gpus: int


def nodes() -> list[Node]:
    """All nodes that are alive."""
    found = []
    for told in ray.nodes():
        has = told["Resources"]
        if told["Alive"]:
            address = told["NodeManagerAddress"]
            found.append(Node(told["NodeID"], address, has.get("CPU", 0.0), int(has.get("GPU", 0))))
    return found


@dataclass(frozen=True)
class Part:
    """What one node runs of a job: the ranks from `first` on, `count` of them (0: a process that is no rank),
    under Ray's scheduling `options`. `node` is one that it has to itself; else Ray chooses.
    """

    first: int
    count: int
    options: dict[str, Any]
    node: Node | None = None


@dataclass(frozen=True)
class Placement:
    """The parts of a job, and the `group` that holds what several of them need."""

    parts: tuple[Part, ...]
    group: PlacementGroup | None = None


class Placer:
    """Chooses the nodes of jobs.

    What needs GPUs goes wherever Ray finds as many that are free. What is measured on processors gets whole
    nodes, one for each rank as far as there are so many. Anything else takes a core.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[str] = set()
        self._lost: set[str] = set()

    def slots_for(self, job: Job) -> int:
        """How many jobs like this one run at a time."""
        if job.num_gpus:
            return max(1, sum(node.num_gpus for node in nodes()) // job.num_gpus)
        if not job.is_measured:
            return max(1, int(sum(node.num_cpus for node in nodes())))
        num_nodes = len(self._with_processors())
        return max(1, num_nodes // min(max(1, job.num_ranks), max(1, num_nodes)))

    def place(self, job: Job) -> Placement | None:
        """Where a job goes; None as long as it has to wait for others of this process's. Raises NoNodes."""
        if job.num_gpus:
            return _on_gpus(job)
        if not job.is_measured:
            return Placement((Part(0, job.num_ranks, {"num_cpus": 1}),))
        with self._lock:
            return self._on_whole_nodes(job)

    def give_back(self, placement: Placement) -> None:
        """Let others have what a job had."""
        with self._lock:
            self._taken.difference_update(part.node.id for part in placement.parts if part.node)
        if placement.group is not None:
            remove_placement_group(placement.group)

    def lose(self, node_id: str) -> None:
        """A node was lost: Ray itself may go on to count on it for a while."""
        with self._lock:
            self._lost.add(node_id)

    def _on_whole_nodes(self, job: Job) -> Placement | None:
        able = self._with_processors()
        if not able:
            raise NoNodes(
                "the Ray cluster has no node with a CPU: a node started with --num-cpus 0 runs nothing"
            )
        wanted = min(max(1, job.num_ranks), len(able))
        free = [node for node in able if node.id not in self._taken][:wanted]
        if len(free) < wanted:
            return None
        self._taken.update(node.id for node in free)
        if wanted == 1:
            pinned = NodeAffinitySchedulingStrategy(free[0].id, soft=False)
            options = {"num_cpus": free[0].num_cpus, "scheduling_strategy": pinned}
            return Placement((Part(0, job.num_ranks, options, free[0]),))
        bundles = [{"CPU": node.num_cpus, f"node:{node.address}": 0.001} for node in free]
        counts = [len(range(place, job.num_ranks, wanted)) for place in range(wanted)]
        return _grouped(bundles, counts, free)

    def _with_processors(self) -> list[Node]:
        return [node for node in nodes() if node.num_cpus >= 1 and node.id not in self._lost]


def _on_gpus(job: Job) -> Placement:
    """On one node if any has so many GPUs, else on as few as possible."""
    by_gpus = sorted((node.num_gpus for node in nodes()), reverse=True)
    if sum(by_gpus) < job.num_gpus:
        raise NoNodes(f"it needs {job.num_gpus} GPUs, and the Ray cluster has {sum(by_gpus)}")
    if by_gpus[0] >= job.num_gpus:
        options = {"num_gpus": job.num_gpus, "num_cpus": 1}
        return Placement((Part(0, job.num_ranks, options),))
    counts: list[int] = []
    for num_gpus in by_gpus:
        if left := job.num_gpus - sum(counts):
            counts.append(min(num_gpus, left))
    return _grouped([{"GPU": count, "CPU": 1} for count in counts], counts, [None] * len(counts))


def _grouped(
    bundles: Sequence[dict[str, float]], counts: Sequence[int], taken: Sequence[Node | None]
) -> Placement:
    """A job over several nodes, which it gets all at once."""
    group = placement_group(list(bundles), strategy="STRICT_SPREAD")
    parts = []
    for place, (bundle, count, node) in enumerate(zip(bundles, counts, taken, strict=True)):
        options = {
            "num_cpus": bundle["CPU"],
            "num_gpus": bundle.get("GPU", 0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, place),
        }
        parts.append(Part(sum(counts[:place]), count, options, node))
    return Placement(tuple(parts), group)

"""Runs every job as a task on a Ray cluster, on a node that has what it needs."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock

import ray

from dpprof.drive.launch.job import Job
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.on_ray.connection import connect
from dpprof.drive.launch.on_ray.handle import RayHandle
from dpprof.drive.launch.on_ray.machine import Nodes
from dpprof.drive.launch.on_ray.nodes import Placer
from dpprof.drive.launch.on_ray.sources import sources_of
from dpprof.vocabulary.cluster_options import RayOptions


class RayLauncher:
    """Nodes of a cluster. Raises ConfigError if it cannot be reached."""

    can_end_jobs = True
    scratch: Path | None = None

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self.machine = Nodes()
        self._placer = Placer()
        self._lock = Lock()
        self._sources: dict[str, object] = {}
        connect(options.ray_address)

    def slots_for(self, job: Job) -> int:
        """As many as there are GPUs, or nodes, for; of what is not measured, one for each core."""
        return self._placer.slots_for(job)

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Give the job to Ray."""
        return RayHandle(
            job, on_line, self._placer, self._options.max_retries, self._sources_of(job.workload)
        )

    def _sources_of(self, workload: str) -> object:
        """A workload's Python files as an object of Ray's: the same for all its experiments."""
        with self._lock:
            if workload not in self._sources:
                self._sources[workload] = ray.put(sources_of(workload))
            return self._sources[workload]

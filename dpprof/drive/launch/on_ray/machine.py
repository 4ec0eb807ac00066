"""What there is on the nodes of the cluster."""

from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpprof.drive.launch.launcher import Ncu
from dpprof.drive.launch.on_ray.nodes import nodes
from dpprof.errors import CountersUnavailable

# How long nodes may take to say how busy they are; one that takes longer is left out.
_ANSWER_S = 15.0
_SAMPLES, _SAMPLE_S = 4, 0.5


def _busy_pct() -> float:
    """On a node: the least of a few moments, as Ray's own start there may be among them."""
    return min(psutil.cpu_percent(interval=_SAMPLE_S) for _ in range(_SAMPLES))


_ask: Any = ray.remote(num_cpus=0, max_retries=0)(_busy_pct)


class Nodes:
    """The nodes, as far as they are told apart at all by those who ask."""

    def cuda_available(self) -> bool:
        """Whether any node has a GPU that Ray knows of."""
        return any(node.num_gpus for node in nodes())

    def busy_pct(self) -> float:
        """How busy the processors of the busiest node are."""
        there = [NodeAffinitySchedulingStrategy(node.id, soft=False) for node in nodes()]
        asked = [_ask.options(scheduling_strategy=node).remote() for node in there]
        answered, late = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
        for one in late:
            ray.cancel(one)
        return max((_answer(one) for one in answered), default=0.0)

    def ncu(self, device: str) -> Ncu:
        """Raises CountersUnavailable: its reports are read on the machine that has made them."""
        raise CountersUnavailable(
            "hardware counters are not read on a Ray cluster: use --launcher local on a node with the GPU"
        )


def _answer(asked: Any) -> float:
    try:
        busy: float = ray.get(asked)
    except ray.exceptions.RayError:  # a node that went away meanwhile
        return 0.0
    return busy

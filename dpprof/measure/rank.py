"""The rank of this process, from the environment variables set by `torchrun` or dpprof's launchers."""

import os
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.vocabulary.parallel import NONE

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Rank:
    """One of `world_size` ranks, and one of the `local_world_size` on its machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def rank_of(config: ExperimentConfig) -> Rank:
    """Return the rank of this process. Raises ConfigError if it is not one of the experiment's ranks."""
    if config.is_estimate or config.parallel == NONE:
        return Rank()
    try:
        rank = Rank(*(int(os.environ[name]) for name in _VARIABLES))
    except (KeyError, ValueError):
        rank = None
    if rank is None or rank.world_size != config.world_size:
        told = "none were started" if rank is None else f"{rank.world_size} were started"
        raise ConfigError(
            f"world_size: the experiment has {config.world_size} ranks, {told}. By hand: torchrun "
            f"--nproc-per-node={config.world_size} -m dpprof.measure RUN_FOLDER"
        )
    return rank

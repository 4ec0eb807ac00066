"""The process group of an experiment's ranks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from dpprof.config.experiment import ExperimentConfig
from dpprof.vocabulary.parallel import FAKE, NONE


@contextmanager
def one_rank_of_many(config: ExperimentConfig, rank: int) -> Iterator[None]:
    """This process is one rank of the experiment's, without the others: torch's fake process group, whose
    collectives return at once and leave their results as they are. Does nothing for one rank alone.
    """
    if config.parallel == NONE:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(FAKE, store=FakeStore(), rank=rank, world_size=config.world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()

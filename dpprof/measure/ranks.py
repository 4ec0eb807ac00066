"""The ranks of an experiment, as one of them sees the others.

Each pass has a process group of its own: a real one, torch's fake one or the silent one, which send nothing.
Between passes ranks meet in a store, which has no part in what is measured.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError
from dpprof.measure.place import Place
from dpprof.measure.silent_group import SILENT
from dpprof.vocabulary.parallel import FAKE, NONE

# Whoever started the ranks ends them when their time is over.
_FOR_EVER = timedelta(days=7)


class Ranks:
    """This process's rank and the others.

    Raises ConfigError if there is no GPU for this rank.
    """

    def __init__(self, config: ExperimentConfig, place: Place) -> None:
        self._config, self._place = config, place
        self._meetings = count()
        self.rank, self.world_size, self.here = place.rank, place.world_size, place.local_world_size
        self.are_real = not config.is_estimate and config.parallel != NONE
        if not self.are_real:
            return
        if config.device == "cuda":
            _take_gpu(place)
        self._store, _, _ = next(rendezvous("env://", timeout=_FOR_EVER))
        self.meet()

    @contextmanager
    def together(self) -> Iterator[None]:
        """All ranks, which send what they send. Does nothing for one that shares with none."""
        if not self.are_real:
            yield
            return
        on_cuda = self._config.device == "cuda"
        dist.init_process_group(
            "nccl" if on_cuda else "gloo",
            store=PrefixStore(f"group {next(self._meetings)}", self._store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=_FOR_EVER,
            device_id=torch.device("cuda", self._place.local_rank) if on_cuda else None,
        )
        yield
        # Without this a rank may close a connection that another one still reads. Not after an error, when
        # others may never come: the process ends then.
        self.meet()
        dist.destroy_process_group()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """This rank as if the others were there, which do the same at the same time."""
        with one_rank_of_many(self._config, self.rank):
            yield
        self.meet()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """This rank as if the others were there, to be timed. The others wait meanwhile; where each has a GPU
        of its own, they do the same at the same time.
        """
        if self._config.device == "cuda":
            with one_rank_of_many(self._config, self.rank, SILENT):
                yield
            self.meet()
            return
        for rank in range(self.world_size):
            if rank == self.rank:
                with one_rank_of_many(self._config, rank, SILENT):
                    yield
            self.meet()

    def meet(self) -> None:
        """Wait for the other ranks."""
        if not self.are_real:
            return
        place = f"meeting {next(self._meetings)}"
        if self._store.add(place, 1) == self.world_size:
            self._store.set(f"{place} is over", "")
        self._store.wait([f"{place} is over"], _FOR_EVER)

    def gathered(self, told: Any) -> list[Any]:
        """What every rank tells, as plain data, in order."""
        if not self.are_real:
            return [told]
        place = f"told {next(self._meetings)}"
        self._store.set(f"{place} by {self.rank}", json.dumps(told))
        keys = [f"{place} by {rank}" for rank in range(self.world_size)]
        self._store.wait(keys, _FOR_EVER)
        return [json.loads(self._store.get(key)) for key in keys]

    def leave(self) -> None:
        """Part from the others: rank 0, which may keep the store, waits for them."""
        if not self.are_real:
            return
        self._store.set(f"left by {self.rank}", "")
        if self.rank == 0:
            self._store.wait([f"left by {rank}" for rank in range(self.world_size)], _FOR_EVER)


def _take_gpu(place: Place) -> None:
    num_gpus = torch.cuda.device_count()
    if place.local_rank >= num_gpus:
        raise ConfigError(
            f"world_size: rank {place.rank} needs a GPU of its own, and this machine has {num_gpus}"
        )
    torch.cuda.set_device(place.local_rank)


@contextmanager
def one_rank_of_many(config: ExperimentConfig, rank: int, group: str = FAKE) -> Iterator[None]:
    """This process is one rank of the experiment's, without the others: torch's fake process group or the
    silent one, whose collectives return at once. Does nothing for one that shares with none.
    """
    if config.parallel == NONE:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(group, store=FakeStore(), rank=rank, world_size=config.world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()

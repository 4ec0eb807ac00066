"""The ranks of an experiment, seen from one of them.

Each pass has its own process group: a real one, or torch's fake one or the silent one, which send nothing.
Between passes, ranks synchronise through a store, which takes no part in what is measured.
"""

import dataclasses
import json
import socket
import statistics
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
from dpprof.config.measuring import ALONE, CLEAN
from dpprof.errors import ConfigError
from dpprof.measure.rank import Rank
from dpprof.measure.silent_group import SILENT
from dpprof.record.record import RankResult, Record
from dpprof.vocabulary.parallel import FAKE, NONE

# The launcher enforces the time limit.
_FOR_EVER = timedelta(days=7)


class Ranks:
    """This process's rank and its connection to the others. Raises ConfigError if it lacks a GPU."""

    def __init__(self, config: ExperimentConfig, own: Rank) -> None:
        self._config, self._this = config, own
        self._meetings = count()
        self.rank, self.world_size, self.here = own.rank, own.world_size, own.local_world_size
        self._own = RankResult(own.rank, host=socket.gethostname())
        self.are_real = not config.is_estimate and config.parallel != NONE
        if not self.are_real:
            return
        if config.device == "cuda":
            num_gpus = torch.cuda.device_count()
            if own.local_rank >= num_gpus:
                raise ConfigError(
                    f"world_size: rank {own.rank} needs a GPU of its own, and this machine has {num_gpus}"
                )
            torch.cuda.set_device(own.local_rank)
        self._store, _, _ = next(rendezvous("env://", timeout=_FOR_EVER))
        self.meet()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run with a real process group (NCCL or gloo). Does nothing without parallel training."""
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
            device_id=torch.device("cuda", self._this.local_rank) if on_cuda else None,
        )
        yield
        # Otherwise a rank may close a connection that another still reads. Skipped after an error, when
        # others may never come; the process then ends.
        self.meet()
        dist.destroy_process_group()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run with torch's fake process group, on all ranks at the same time."""
        with one_rank_of_many(self._config, self.rank):
            yield
        self.meet()

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Run with the silent group, to be timed: at the same time if each rank has a GPU, else in turn."""
        for rank in [self.rank] if self._config.device == "cuda" else range(self.world_size):
            if rank == self.rank:
                with one_rank_of_many(self._config, rank, SILENT):
                    yield
            self.meet()

    def meet(self) -> None:
        """Wait for the other ranks."""
        if self.are_real:
            self._gathered(None)

    def record_results(self, name: str, record: Record) -> None:
        """Record all ranks' figures after a pass. Rank 0 gets the slowest times and all non-finite losses."""
        if not self.are_real:
            return
        own = self._own
        if name == CLEAN:
            own.step_s, own.phase_s = record.step_s, record.phase_s
            own.nonfinite_losses = record.nonfinite_losses
        if name == ALONE:
            own.alone_step_s = record.alone_step_s
        own.peak = record.memory.peak_allocated
        peaks = record.memory.phase_peak
        own.phase = max(peaks, key=lambda phase: peaks[phase], default=None)
        record.ranks = [RankResult(**told) for told in self._gathered(dataclasses.asdict(own))]
        if name == CLEAN and self.rank == 0:
            slowest = max(record.ranks, key=lambda rank: statistics.median(rank.step_s))
            record.step_s, record.phase_s = slowest.step_s, slowest.phase_s
            record.nonfinite_losses = sum(rank.nonfinite_losses or 0 for rank in record.ranks)

    def _gathered(self, told: Any) -> list[Any]:
        """Gather every rank's plain data (JSON), in order of ranks."""
        key = f"told {next(self._meetings)}"
        self._store.set(f"{key} by {self.rank}", json.dumps(told))
        keys = [f"{key} by {rank}" for rank in range(self.world_size)]
        self._store.wait(keys, _FOR_EVER)
        return [json.loads(self._store.get(key)) for key in keys]

    def leave(self) -> None:
        """Disconnect from the others: rank 0, which may host the store, waits for them."""
        if not self.are_real:
            return
        self._store.set(f"left by {self.rank}", "")
        if self.rank == 0:
            self._store.wait([f"left by {rank}" for rank in range(self.world_size)], _FOR_EVER)


@contextmanager
def one_rank_of_many(config: ExperimentConfig, rank: int, group: str = FAKE) -> Iterator[None]:
    """Run as one rank without the others, in a process group whose collectives return at once.

    `group` is torch's fake one or the silent one. Does nothing without parallel training.
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

"""The alone pass: a process group that sends nothing, and whose time does not grow with the ranks."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_one_of_many import WAYS, config_of
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.config.flat import to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.launch.ranks import LOOPBACK, free_port
from dpprof.measure.passes import clean
from dpprof.measure.passes.subject import Subject
from dpprof.measure.rank import Rank
from dpprof.measure.ranks import Ranks, one_rank_of_many
from dpprof.measure.silent_group import SILENT
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.parallel import DDP

WORLD_SIZE, RANK = 64, 3


class Copies(TorchDispatchMode):
    """Counts the kernels that write tensors."""

    num = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num += func._schema.is_mutable
        return func(*args, **(kwargs or {}))


@pytest.fixture
def silent() -> Iterator[None]:
    with one_rank_of_many(config_of("StandardTrainer", DDP, WORLD_SIZE), RANK, SILENT):
        yield


@pytest.mark.parametrize(("trainer", "way"), WAYS)
def test_every_trainer_runs_its_alone_pass_on_it(trainer: str, way: str) -> None:
    how = MeasuringConfig(warmup_steps=1, measured_steps=3)
    config = dataclasses.replace(config_of(trainer, way, 4), how=how)
    subject = Subject(config, RunFolder(Path("unused")), Record(to_flat(config), {}))
    with one_rank_of_many(config, 1, SILENT):
        clean.run_alone(subject)
    assert len(subject.record.alone_step_s) == 3


@pytest.mark.usefixtures("silent")
def test_gathering_is_one_copy_whatever_the_ranks() -> None:
    own, whole = torch.arange(6.0).view(2, 3), torch.zeros(2 * WORLD_SIZE, 3)
    with Copies() as copies:
        dist.all_gather_into_tensor(whole, own)
    assert copies.num == 1
    assert torch.equal(whole, own.repeat(WORLD_SIZE, 1))


@pytest.mark.usefixtures("silent")
def test_gathering_around_ones_own_part_leaves_it() -> None:
    whole = torch.zeros(2 * WORLD_SIZE)
    own = whole[2 * RANK : 2 * RANK + 2]
    own += 1
    with Copies() as copies:
        dist.all_gather_into_tensor(whole, own)
    assert copies.num == 2
    assert whole.eq(1).all()


@pytest.mark.usefixtures("silent")
def test_scattering_takes_ones_own_part_and_reducing_takes_nothing() -> None:
    whole, mine = torch.arange(2.0 * WORLD_SIZE), torch.zeros(2)
    with Copies() as copies:
        dist.reduce_scatter_tensor(mine, whole)
    assert (copies.num, mine.tolist()) == (1, [2 * RANK, 2 * RANK + 1])
    parts = [torch.zeros(2) for _ in range(WORLD_SIZE)]
    with Copies() as copies:
        dist.all_gather(parts, mine)
        dist.all_reduce(mine)
        dist.broadcast(mine, 0)
        dist.barrier()
    assert copies.num == 1
    assert all(torch.equal(part, mine) for part in parts)


def test_ranks_are_timed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": LOOPBACK}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_PORT", str(free_port(LOOPBACK)))
    ranks = Ranks(config_of("StandardTrainer", DDP, 1), Rank(0, 1, 0, 1))
    with ranks.in_turn():
        assert dist.get_backend() == SILENT

"""What the ledger takes for the payload of a collective: the whole tensor, however torch is asked for it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_one_of_many import config_of
from torch import Tensor

from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.ranks import one_rank_of_many
from dpprof.vocabulary.parallel import ALL_GATHER, ALL_REDUCE, DDP, REDUCE_SCATTER

WORLD_SIZE = 4
NUM_BYTES = 80  # of the tensor of one rank


def name() -> str:
    return dist.distributed_c10d._get_default_group().group_name


def functional(operator: str, *args: Any) -> None:
    made = getattr(torch.ops._c10d_functional, operator)(*args, name())
    for tensor in made if isinstance(made, list) else [made]:
        torch.ops._c10d_functional.wait_tensor(tensor)


def parts() -> list[Tensor]:
    return [torch.zeros(20) for _ in range(WORLD_SIZE)]


ONE, WHOLE = torch.zeros(20), torch.zeros(20 * WORLD_SIZE)
CASES: dict[str, tuple[Callable[[], object], str, int]] = {
    "list": (lambda: dist.all_gather(parts(), ONE), ALL_GATHER, WORLD_SIZE),
    "base": (lambda: dist.all_gather_into_tensor(WHOLE, ONE), ALL_GATHER, WORLD_SIZE),
    "functional": (
        lambda: functional("all_gather_into_tensor", ONE, WORLD_SIZE),
        ALL_GATHER,
        WORLD_SIZE,
    ),
    "coalesced": (
        lambda: functional("all_gather_into_tensor_coalesced", [ONE, ONE], WORLD_SIZE),
        ALL_GATHER,
        2 * WORLD_SIZE,
    ),
    "scattered list": (lambda: dist.reduce_scatter(ONE, parts()), REDUCE_SCATTER, WORLD_SIZE),
    "scattered": (
        lambda: functional("reduce_scatter_tensor", WHOLE, "sum", WORLD_SIZE),
        REDUCE_SCATTER,
        WORLD_SIZE,
    ),
    "reduced": (lambda: dist.all_reduce(ONE), ALL_REDUCE, 1),
    "reduced in place": (lambda: functional("all_reduce_", ONE, "sum"), ALL_REDUCE, 1),
    "reduced together": (
        lambda: functional("all_reduce_coalesced", [ONE, ONE], "sum"),
        ALL_REDUCE,
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_payload_is_the_whole_tensor(case: str) -> None:
    call, collective, times = CASES[case]
    with one_rank_of_many(config_of("StandardTrainer", DDP, WORLD_SIZE), 0), Ledger("cpu") as ledger:
        with ledger.counting():
            call()
        (row,) = ledger.take_collectives()
    assert (row.name, row.calls, row.payload) == (collective, 1, times * NUM_BYTES)

"""Collectives, and what a ring sends for them."""

import pytest

from dpprof.vocabulary.operator_classes import class_by_name, class_in_phase, kernel_class
from dpprof.vocabulary.parallel import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    bytes_sent,
    collective_of,
)


@pytest.mark.parametrize(
    ("operator", "collective"),
    [
        ("c10d::allreduce_", ALL_REDUCE),
        ("c10d::_allgather_base_", ALL_GATHER),
        ("_c10d_functional::all_gather_into_tensor", ALL_GATHER),
        ("c10d::_reduce_scatter_base_", REDUCE_SCATTER),
        ("_c10d_functional::reduce_scatter_tensor", REDUCE_SCATTER),
        ("c10d::broadcast_", BROADCAST),
        ("_c10d_functional::wait_tensor", None),
        ("aten::all", None),
    ],
)
def test_an_operator_is_known_by_its_name(operator: str, collective: str | None) -> None:
    assert collective_of(operator) == collective


def test_a_ring_sends_all_but_a_rank_s_own_part() -> None:
    assert bytes_sent(ALL_GATHER, 800, 8) == bytes_sent(REDUCE_SCATTER, 800, 8) == 700
    assert bytes_sent(ALL_REDUCE, 800, 8) == 1400
    assert bytes_sent(ALL_REDUCE, 800, 1) == bytes_sent(BROADCAST, 800, 1) == 0
    assert bytes_sent(BROADCAST, 800, 8) == 800


@pytest.mark.parametrize("phase", ["backward", "clip"])
def test_communication_is_that_in_every_phase(phase: str) -> None:
    assert class_in_phase(class_by_name("c10d::allreduce_"), phase) == "communication"
    for kernel in ("ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"):
        assert kernel_class(kernel, phase) == "communication"

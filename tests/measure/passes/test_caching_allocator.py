"""Blocks and segments by arithmetic, as torch's documentation of its CUDA allocator has them."""

from itertools import pairwise

import pytest

from dpprof.measure.passes.caching_allocator import CachingAllocator, peak_allocated
from dpprof.vocabulary.units import MIB


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (0, 512, 2 * MIB),
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (16_384_000, 16 * MIB, 16 * MIB),
        (125 * MIB, 126 * MIB, 126 * MIB),
    ],
)
def test_one_block(asked: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(asked)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_a_large_block_keeps_a_rest_of_up_to_one_mib() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(16 * MIB))
    assert allocator.allocate(15 * MIB).size == 16 * MIB
    assert allocator.allocate(3 * MIB).size == 3 * MIB
    assert allocator.reserved == 36 * MIB


def test_the_best_fit_is_taken_and_neighbours_merge() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(6 * MIB) for _ in range(3))
    assert (allocator.allocated, allocator.reserved) == (18 * MIB, 20 * MIB)
    allocator.free(first)
    assert allocator.allocate(2 * MIB).address == third.address + 6 * MIB, "the last two MiB fit best"
    allocator.free(second)
    assert allocator.allocate(12 * MIB).address == first.address, "both free ones together"
    assert (allocator.allocated, allocator.reserved) == (20 * MIB, 20 * MIB)


def test_the_peak_counts_from_a_change_on_with_what_was_there() -> None:
    changes = [(0, 30 * MIB), (0, 0), (1, 4 * MIB), (2, 1), (2, 0), (1, 8 * MIB)]
    assert peak_allocated(changes, 0) == 30 * MIB
    assert peak_allocated(changes, 3) == 8 * MIB
    assert peak_allocated(changes[:4], 3) == 4 * MIB + 512


def test_blocks_of_segments_lie_apart() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size) for size in (MIB, 4 * MIB, 30 * MIB, 512, 5 * MIB, MIB, 12 * MIB)]
    spans = sorted((block.address, block.address + block.size) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert spans[-1][1] <= allocator.reserved
    for block in blocks:
        allocator.free(block)
    assert allocator.allocated == 0

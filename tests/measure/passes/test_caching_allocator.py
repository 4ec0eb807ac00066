"""The simulated allocator against torch's real one, and against arithmetic.

`allocator_answers.json.gz` has what the caching allocator of torch 2.13 answered, without a GPU: to the first
allocations of real steps, and to random ones, on devices with memory to spare and on small ones
(`benchmarks/phantom/replay.py`).
"""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dpprof.measure.passes.caching_allocator import CachingAllocator, DeviceFull
from dpprof.vocabulary.units import MIB

ANSWERS: list[dict[str, Any]] = [
    answer
    for answer in json.loads(
        gzip.decompress(Path(__file__).with_name("allocator_answers.json.gz").read_bytes())
    )
    if "max_split_size_mb" not in answer["conf"]  # a setting that nothing simulates
]


def replay(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as `benchmarks/phantom/replay.py` has torch answer."""
    allocator = CachingAllocator(
        asked["capacity"] * MIB or None, expandable="expandable_segments" in asked["conf"]
    )
    held: dict[int, Any] = {}
    levels = []
    is_full = False
    for index, request in enumerate(asked["requests"]):
        try:
            if request < 0:
                allocator.free(held.pop(-1 - request))
            else:
                held[index] = allocator.allocate(request)
        except DeviceFull:
            is_full = True
            break
        levels.append([allocator.allocated, allocator.reserved])
    return {"levels": levels, "is_full": is_full}


@pytest.mark.parametrize("asked", ANSWERS, ids=lambda asked: f"{asked['name']} {asked['conf']}".strip())
def test_every_answer_is_torchs(asked: dict[str, Any]) -> None:
    """Bytes allocated and reserved after each request, and the end."""
    levels = [[allocated, reserved] for allocated, reserved, _ in asked["levels"]]
    assert replay(asked) == {"levels": levels, "is_full": asked["is_full"]}


def test_some_answers_have_retries_and_some_end_out_of_memory() -> None:
    assert len(ANSWERS) >= 20
    assert sum(one["retries"] > one["is_full"] for one in ANSWERS) >= 3
    assert {one["conf"].partition(":")[0] for one in ANSWERS} == {"", "expandable_segments"}


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


def test_blocks_of_segments_lie_apart() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size) for size in (MIB, 4 * MIB, 30 * MIB, 512, 5 * MIB, MIB, 12 * MIB)]
    spans = sorted((block.address, block.address + block.size) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    for block in blocks:
        allocator.free(block)
    assert allocator.allocated == 0

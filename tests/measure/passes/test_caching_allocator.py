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

from dpprof.measure.passes.caching_allocator import AllocatorSettings, CachingAllocator, DeviceFull
from dpprof.vocabulary.units import MIB

ANSWERS: list[dict[str, Any]] = json.loads(
    gzip.decompress(Path(__file__).with_name("allocator_answers.json.gz").read_bytes())
)


def replay(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as `benchmarks/phantom/replay.py` has torch answer."""
    given = dict(pair.split(":") for pair in asked["conf"].split(",") if pair)
    settings = AllocatorSettings("expandable_segments" in given)
    if "max_split_size_mb" in given:
        settings = AllocatorSettings(max_split_bytes=int(given["max_split_size_mb"]) * MIB)
    allocator = CachingAllocator(asked["capacity"] * MIB or None, settings)
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
        levels.append([allocator.allocated, allocator.reserved, allocator.num_segments])
    return {"levels": levels, "is_full": is_full, "retries": allocator.num_retries}


@pytest.mark.parametrize("asked", ANSWERS, ids=lambda asked: f"{asked['name']} {asked['conf']}".strip())
def test_every_answer_is_torchs(asked: dict[str, Any]) -> None:
    """Bytes allocated and reserved and the number of segments after each request, retries, and the end."""
    assert replay(asked) == {name: asked[name] for name in ("levels", "is_full", "retries")}


def test_some_answers_have_retries_and_some_end_out_of_memory() -> None:
    assert len(ANSWERS) >= 20
    assert sum(one["retries"] > one["is_full"] for one in ANSWERS) >= 3
    assert {one["conf"].partition(":")[0] for one in ANSWERS} == {
        "",
        "expandable_segments",
        "max_split_size_mb",
    }


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

"""The simulated allocator against torch's real one, and against arithmetic.

`allocator_answers.json.gz` has what the caching allocator of torch 2.13 answered, without a GPU: to the first
allocations of real steps, and to random ones, on devices with memory to spare and on small ones
(`benchmarks/phantom/replay.py`).
"""

import gzip
import json
import lzma
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from dpprof.measure.passes.caching_allocator import CachingAllocator, DeviceFull
from dpprof.vocabulary.units import MIB

ANSWERS: list[dict[str, Any]] = [
    answer
    for answer in json.loads(
        gzip.decompress(Path(__file__).with_name("allocator_answers.json.gz").read_bytes())
    )
    if "max_split_size_mb" not in answer["conf"]  # a setting that nothing simulates
]


# What torch 2.11 did on an H100 (driver 580) in thirteen steps. Addresses count blocks of 512 bytes.
ON_AN_H100: list[tuple[str, int, int]] = json.loads(
    lzma.decompress(Path(__file__).with_name("allocator_of_an_h100.json.xz").read_bytes())
)


def replay(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as `benchmarks/phantom/replay.py` has torch answer."""
    expandable = "expandable_segments" in asked["conf"]
    allocator = CachingAllocator(asked["capacity"] * MIB or None, expandable=expandable, oldest_first=True)
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


def test_every_address_is_that_on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the segments where the driver put them."""
    allocator = CachingAllocator(oldest_first=False)
    segments = iter([(512 * at, size) for what, at, size in ON_AN_H100 if what == "segment"])

    def given(size: int) -> int:
        address, num_bytes = next(segments)
        assert size == num_bytes
        return address

    monkeypatch.setattr(allocator, "_addresses", given)
    held: dict[int, Any] = {}
    for what, at, size in ON_AN_H100:
        if what == "allocate":
            held[at] = allocator.allocate(size)
            assert held[at].address == 512 * at
        elif what == "free":
            allocator.free(held.pop(at))
    assert next(segments, None) is None
    assert len(ON_AN_H100) > 10_000


def test_segments_lie_where_so_much_is_reserved_as_on_an_h100() -> None:
    """With the segments where the simulation puts them. The oldest first would need one more of 126 MiB."""
    reserved = []
    for allocator in (CachingAllocator(oldest_first=oldest_first) for oldest_first in (False, True)):
        held: dict[int, Any] = {}
        for what, at, size in ON_AN_H100:
            if what == "allocate":
                held[at] = allocator.allocate(size)
            elif what == "free":
                allocator.free(held.pop(at))
        reserved.append(allocator.reserved)
    on_an_h100 = sum(size for what, _, size in ON_AN_H100 if what == "segment")
    assert reserved == [on_an_h100, on_an_h100 + 126 * MIB]


def test_of_free_blocks_of_one_size_the_oldest_segments_come_first() -> None:
    """Or those at the lowest address, where the first segment is the highest. As torch 2.13 and 2.11 do."""
    found = {}
    for oldest_first in (True, False):
        allocator = CachingAllocator(oldest_first=oldest_first)
        blocks = [allocator.allocate(2 * MIB) for _ in range(20)]  # ten to a segment
        places = {block.address: index for index, block in enumerate(blocks)}
        for index in (7, 11, 1, 15, 5, 17):
            allocator.free(blocks[index])
        found[oldest_first] = [places[allocator.allocate(2 * MIB).address] for _ in range(6)]
    assert found == {True: [1, 5, 7, 11, 15, 17], False: [11, 15, 17, 1, 5, 7]}
    assert CachingAllocator()._oldest_first == (torch.__version__ >= "2.13")


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

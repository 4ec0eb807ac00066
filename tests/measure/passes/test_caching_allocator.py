"""The simulated allocator, and steps on it, against torch's real one and against arithmetic.

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
from dpprof.measure.passes.device_memory import AllocatedSteps, Change
from dpprof.vocabulary.units import MIB

HERE = Path(__file__).parent
ASKED: list[dict[str, Any]] = json.loads(gzip.decompress((HERE / "allocator_answers.json.gz").read_bytes()))
# Without those of a setting that nothing simulates.
ANSWERS = [answer for answer in ASKED if "max_split_size_mb" not in answer["conf"]]
# What torch 2.11 did on an H100 (driver 580) in thirteen steps. Addresses count blocks of 512 bytes.
ON_AN_H100: list[tuple[str, int, int]] = json.loads(
    lzma.decompress((HERE / "allocator_of_an_h100.json.xz").read_bytes())
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


SMALLEST, MOST_SHARED = 512, 10 * MIB - 512
# What is asked, what is allocated, and what is reserved.
BLOCKS = [(0, SMALLEST, 2 * MIB), (1, SMALLEST, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB)]
BLOCKS += [(MIB + 1, MIB + 512, 20 * MIB), (MOST_SHARED, MOST_SHARED, 20 * MIB), (10 * MIB,) * 3]
BLOCKS += [(16_384_000, 16 * MIB, 16 * MIB), (125 * MIB, 126 * MIB, 126 * MIB)]


@pytest.mark.parametrize(("asked", "allocated", "reserved"), BLOCKS)
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


# A parameter of 30 MiB; in each step an activation, then a gradient that takes the last one's place.
BEFORE: list[Change] = [(0, 30 * MIB), (1, 40 * MIB), (2, 30 * MIB), (1, 0)]
STEP: list[Change] = [(3, 40 * MIB), (2, 0), (4, 30 * MIB), (3, 0)]


def test_the_peak_is_the_last_steps() -> None:
    for earlier in ([], [(0, 200 * MIB), (0, 0)]):
        steps = AllocatedSteps([*earlier, *BEFORE, *STEP], len(earlier) + len(BEFORE))
        assert steps.on_device().allocated == 100 * MIB


def test_a_repeated_step_frees_what_the_one_before_left() -> None:
    """Without that, each would leave 30 MiB more."""
    steps = AllocatedSteps([*BEFORE, *STEP], len(BEFORE))
    assert steps.on_device(repeats=5) == steps.on_device()
    assert steps.segments().reserved == 100 * MIB


def test_what_changes_its_size_is_allocated_anew() -> None:
    steps = AllocatedSteps([(0, 30 * MIB), (0, 50 * MIB), (0, 0), (1, 40 * MIB)], 0)
    assert (steps.on_device().allocated, steps.on_device().reserved) == (50 * MIB, 80 * MIB)


def test_a_smaller_device_runs_the_step_where_segments_are_given_back() -> None:
    """A block of 60 MiB finds no room in one of 50 MiB, which is given back if the device is full."""
    changes: list[Change] = [(0, 50 * MIB), (0, 0), (1, 60 * MIB), (1, 0)]
    found = AllocatedSteps(changes, 0).segments()
    assert (found.reserved, found.expandable) == (110 * MIB, 60 * MIB)
    assert 60 * MIB <= found.least <= 60.6 * MIB


def test_a_repeated_step_frees_what_a_smaller_one_left() -> None:
    """The step before had a smaller batch, and left a gradient of another size."""
    steps = AllocatedSteps([(0, 30 * MIB), (2, 20 * MIB), *STEP], 2)
    repeated = steps.on_device(repeats=5)
    assert (repeated.allocated, repeated.reserved) == (100 * MIB, steps.on_device(repeats=1).reserved)


class OnSomeDevices(AllocatedSteps):
    """Steps that run on some devices alone, in MiB, as segments are given back in another order."""

    def __init__(self, *failing: range) -> None:
        super().__init__([(0, 100 * MIB), (0, 0), (1, 200 * MIB), (1, 0)], 0)
        self.failing = failing

    def _runs(self, capacity: int) -> bool:
        return not any(capacity // MIB in failing for failing in self.failing)


def test_the_smallest_device_is_one_that_also_runs_with_more_memory() -> None:
    assert 230 * MIB <= OnSomeDevices(range(200, 230)).segments().least <= 231 * MIB
    assert 256 * MIB <= OnSomeDevices(range(200, 250), range(253, 256)).segments().least <= 257 * MIB
    assert OnSomeDevices(range(200, 300)).segments().least == 300 * MIB

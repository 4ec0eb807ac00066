"""Reading the events of a real recording."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dpprof.measure.passes.events import no_collection, own_allocations, read

# Two sizes in bytes that the C library serves from the same places.
EARLIER, OLDER = 2044, 2040
NUM_BLOCKS = 300


@pytest.fixture(autouse=True)
def _nothing_else_is_freed() -> Iterator[None]:
    """Keep what earlier tests left from being freed while something is recorded.

    A process's first recording leaves a cycle that holds its caller's variables.
    """
    with recording():
        pass
    gc.collect()
    with no_collection():
        yield


def recording() -> profile:
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def of_bytes(num_bytes: int) -> Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8)


def where_one_was_recorded() -> Tensor:
    """A block where another lay that an earlier recording saw made, and not freed."""
    with recording():
        earlier = [of_bytes(EARLIER) for _ in range(NUM_BLOCKS)]
    places = {block.data_ptr() for block in earlier}
    del earlier
    blocks = [of_bytes(OLDER) for _ in range(NUM_BLOCKS)]
    return next(block for block in blocks if block.data_ptr() in places)


def test_the_free_of_an_older_block_is_left_out_where_an_earlier_recording_had_one() -> None:
    older = where_one_was_recorded()
    with recording() as profiler:
        kept = of_bytes(EARLIER)
        del older
        gone = of_bytes(EARLIER)
        del gone
    events = [event.num_bytes for event in read(profiler, "cpu").allocations]
    assert events == [EARLIER, -EARLIER, EARLIER, -EARLIER]
    assert [event.num_bytes for event in own_allocations(profiler)] == [EARLIER, EARLIER, -EARLIER]
    del kept


def test_blocks_of_one_recording_are_read_as_the_profiler_lists_them() -> None:
    with recording() as profiler:
        x = torch.randn(64, 64, requires_grad=True)
        (x @ x).relu().sum().backward()
        del x
    listed = read(profiler, "cpu").allocations
    assert own_allocations(profiler) == listed
    assert {event.num_bytes for event in listed} >= {64 * 64 * 4, -64 * 64 * 4}

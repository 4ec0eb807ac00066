"""torch's CUDA caching allocator, simulated: the blocks that it hands out for a sequence of allocations.

Follows c10/cuda/CUDACachingAllocator.cpp of torch 2.13 with its default settings, for one stream and a device
that is never full. Small blocks, of up to 1 MiB, lie in segments of 2 MiB; larger ones in segments of 20 MiB
or more. A block is the best fit among the free ones of its pool, and is split only if enough is left: a large
block keeps a rest of up to 1 MiB. Free neighbours merge.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.config.devices import BLOCK_BYTES
from dpprof.vocabulary.units import MIB

_LARGEST_SMALL = MIB
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * MIB, 20 * MIB
# From this size on, a block gets a segment of its own, of whole 2 MiB.
_OWN_SEGMENT = 10 * MIB


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment, with its neighbours there."""

    address: int
    size: int
    is_small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    is_free: bool = True


class CachingAllocator:
    """Hands out blocks. Sizes are in bytes; `allocated` sums the blocks in use, `reserved` the segments."""

    def __init__(self) -> None:
        self.allocated = self.reserved = 0
        # Free blocks of large and of small segments, by size, then address.
        self._free: tuple[list[tuple[int, int, Block]], ...] = ([], [])

    def allocate(self, num_bytes: int) -> Block:
        """Return a block of at least so many bytes."""
        size = max(1, -(-num_bytes // BLOCK_BYTES)) * BLOCK_BYTES
        is_small = size <= _LARGEST_SMALL
        block = self._best_fit(size, is_small) or self._new_segment(size, is_small)
        rest = block.size - size
        if rest > (0 if is_small else _LARGEST_SMALL):
            remaining = Block(block.address + size, rest, is_small, block, block.after)
            if remaining.after is not None:
                remaining.after.before = remaining
            block.size, block.after = size, remaining
            self._insert(remaining)
        block.is_free = False
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Take a block back, and merge it with its free neighbours."""
        self.allocated -= block.size
        block.is_free = True
        if block.before is not None and block.before.is_free:
            self._remove(block.before)
            block = _merged(block.before, block)
        if block.after is not None and block.after.is_free:
            self._remove(block.after)
            block = _merged(block, block.after)
        self._insert(block)

    def _best_fit(self, size: int, is_small: bool) -> Block | None:
        free = self._free[is_small]
        index = bisect_left(free, (size, -1))
        return free.pop(index)[2] if index < len(free) else None

    def _new_segment(self, size: int, is_small: bool) -> Block:
        if is_small:
            segment = _SMALL_SEGMENT
        else:
            segment = _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // (2 * MIB)) * 2 * MIB
        address = self.reserved
        self.reserved += segment
        return Block(address, segment, is_small)

    def _insert(self, block: Block) -> None:
        insort(self._free[block.is_small], (block.size, block.address, block))

    def _remove(self, block: Block) -> None:
        free = self._free[block.is_small]
        del free[bisect_left(free, (block.size, block.address))]


def _merged(first: Block, second: Block) -> Block:
    first.size += second.size
    first.after = second.after
    if first.after is not None:
        first.after.before = first
    return first


def peak_allocated(changes: Iterable[tuple[int, int]], since: int) -> int:
    """Return the peak bytes in blocks from the change with the index `since` on.

    Changes are pairs of a storage's number and its bytes from then on, 0 when it is freed.
    """
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    peak = 0
    for index, (storage, num_bytes) in enumerate(changes):
        if index == since:
            peak = allocator.allocated
        held = blocks.pop(storage, None)
        if held is not None:
            allocator.free(held)
        if num_bytes:
            blocks[storage] = allocator.allocate(num_bytes)
        peak = max(peak, allocator.allocated)
    return peak

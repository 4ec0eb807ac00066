"""torch's CUDA caching allocator, simulated: the blocks and segments that a sequence of allocations takes.

Follows c10/cuda/CUDACachingAllocator.cpp of torch 2.13, for one stream. Small blocks, of up to 1 MiB, lie in
segments of 2 MiB; larger ones in segments of 20 MiB or more. A block is the best fit among the free ones of
its pool: of several, that in the oldest segment, or before torch 2.13 that at the lowest address. It is split
only if enough is left: a large block keeps a rest of up to 1 MiB. Free neighbours merge. If the device has no
room for a segment, unused segments are given back first.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

import torch

from dpprof.config.devices import BLOCK_BYTES
from dpprof.vocabulary.units import MIB

_LARGEST_SMALL = MIB
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * MIB, 20 * MIB
# From this size on, a block gets a segment of its own, of whole 2 MiB.
_OWN_SEGMENT = 10 * MIB
_WITHOUT_END = 1 << 60
OLDEST_FIRST = torch.__version__ >= "2.13"  # a TorchVersion compares as versions do


class DeviceFull(Exception):
    """The device has no memory for an allocation, even without the segments that were given back."""


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment, with its neighbours there. In expandable segments it may lack memory."""

    address: int
    size: int
    is_small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    is_free: bool = True
    is_mapped: bool = True

    def cut(self, size: int) -> "Block":
        """Shorten the block to `size` bytes, and return the rest as its free neighbour."""
        rest = Block(self.address + size, self.size - size, self.is_small, self, self.after)
        rest.is_mapped = self.is_mapped
        if rest.after is not None:
            rest.after.before = rest
        self.size, self.after = size, rest
        return rest

    def joined(self, following: "Block") -> "Block":
        """Return this block with the next one in it."""
        self.size += following.size
        self.after = following.after
        if self.after is not None:
            self.after.before = self
        return self


_Pools = tuple[list[tuple[int, int, Block]], list[tuple[int, int, Block]]]


class CachingAllocator:
    """Hands out blocks of a device with `capacity` bytes (None: without end). Sizes are in bytes.

    `allocated` sums the blocks in use and `reserved` the segments, which may be `expandable` (a setting of
    `PYTORCH_CUDA_ALLOC_CONF`). `oldest_first` says which of the free blocks of one size is taken (None: the
    one that this torch takes).
    """

    def __init__(
        self, capacity: int | None = None, *, expandable: bool = False, oldest_first: bool | None = None
    ) -> None:
        self._capacity = _WITHOUT_END if capacity is None else capacity
        self._expandable = expandable
        self._oldest_first = OLDEST_FIRST if oldest_first is None else oldest_first
        self.allocated = self.reserved = 0
        # Free blocks of large and of small segments, by size, then address.
        self._free: _Pools = ([], [])
        # Parts of expandable segments that lack memory, by address.
        self._unmapped: _Pools = ([], [])
        self._lowest_address = self._highest_address = 1 << 62

    def allocate(self, num_bytes: int) -> Block:
        """Return a block of at least so many bytes. Raises DeviceFull."""
        size = max(1, -(-num_bytes // BLOCK_BYTES)) * BLOCK_BYTES
        is_small = size <= _LARGEST_SMALL
        block = self._best_fit(size, is_small) or self._new(size, is_small)
        if block is None:
            self._release_unused()
            block = self._new(size, is_small)
        if block is None:
            raise DeviceFull
        least = BLOCK_BYTES if is_small or self._expandable else _LARGEST_SMALL + 1
        if block.size - size >= least:
            self._insert(block.cut(size))
        block.is_free = False
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Take a block back, and merge it with its free neighbours."""
        self.allocated -= block.size
        block.is_free = True
        self._insert(self._merged(block))

    def _best_fit(self, size: int, is_small: bool) -> Block | None:
        free = self._free[is_small]
        index = bisect_left(free, (size, -1))
        if index == len(free):
            return None
        if self._expandable:
            while index + 1 < len(free) and _room(free[index + 1][2]) < _room(free[index][2]):
                index += 1
        return free.pop(index)[2]

    def _new(self, size: int, is_small: bool) -> Block | None:
        if self._expandable:
            return self._expanded(size, is_small)
        large = _LARGE_SEGMENT if size < _OWN_SEGMENT else _whole(size, _SMALL_SEGMENT)
        segment = _SMALL_SEGMENT if is_small else large
        if self.reserved + segment > self._capacity:
            return None
        self.reserved += segment
        return Block(self._addresses(segment), segment, is_small)

    def _addresses(self, size: int) -> int:
        """Return the first of so many addresses that no segment has.

        Below all others, where an H100's driver (580) had them; above, where the oldest segment comes first.
        """
        if self._oldest_first:
            first = _whole(self._highest_address, _LARGE_SEGMENT)
            self._highest_address = first + size
            return first
        self._lowest_address = (self._lowest_address - size) // _LARGE_SEGMENT * _LARGE_SEGMENT
        return self._lowest_address

    def _release_unused(self) -> None:
        """Give back every segment without a block in use; of expandable ones, every such page."""
        for free in self._free:
            for _, _, block in list(free):
                if self._expandable:
                    self._unmap(block)
                elif block.before is None and block.after is None:
                    self._remove(block)
                    self.reserved -= block.size

    def _expanded(self, size: int, is_small: bool) -> Block | None:
        """Return a block in an expandable segment, at the lowest address with room, and map it."""
        block = self._with_room(size, is_small)
        while not block.is_mapped or block.size < size:
            part = block.after if block.is_mapped else block
            missing = size - block.size if block.is_mapped else size
            assert part is not None, "there is room"
            mapped = self._map(part, min(part.size, missing))
            if mapped is None:
                return None
            block = mapped
        self._remove(block)
        return block

    def _with_room(self, size: int, is_small: bool) -> Block:
        for _, _, block in self._unmapped[is_small]:
            first = block.before if block.before is not None and block.before.is_free else block
            room = 0
            part: Block | None = first
            while room < size and part is not None and part.is_free:
                room += part.size
                part = part.after
            if room >= size:
                return first
        # Torch reserves addresses for 9/8 of the device's memory.
        whole = _whole(self._capacity + self._capacity // 8, _page(is_small))
        block = Block(self._addresses(whole), whole, is_small, is_mapped=False)
        self._insert(block)
        return block

    def _map(self, block: Block, size: int) -> Block | None:
        """Give memory to the whole pages of a block's first `size` bytes. Returns None if there is none."""
        size = _whole(size, _page(block.is_small))
        if self.reserved + size > self._capacity:
            return None
        self._remove(block)
        if size < block.size:
            self._insert(block.cut(size))
        block.is_mapped = True
        self.reserved += size
        block = self._merged(block)
        self._insert(block)
        return block

    def _unmap(self, block: Block) -> None:
        """Take the memory of the whole pages of a free block."""
        page = _page(block.is_small)
        first, end = _whole(block.address, page), (block.address + block.size) // page * page
        if first >= end:
            return
        self._remove(block)
        if first > block.address:
            rest = block.cut(first - block.address)
            self._insert(block)
            block = rest
        if end < block.address + block.size:
            self._insert(block.cut(end - block.address))
        block.is_mapped = False
        self.reserved -= block.size
        self._insert(self._merged(block))

    def _merged(self, block: Block) -> Block:
        """Return the block, with its free neighbours of the same kind in it."""
        before, after = block.before, block.after
        if before is not None and before.is_free and before.is_mapped == block.is_mapped:
            self._remove(before)
            block = before.joined(block)
        if after is not None and after.is_free and after.is_mapped == block.is_mapped:
            self._remove(after)
            block = block.joined(after)
        return block

    def _insert(self, block: Block) -> None:
        pool, size = (self._free, block.size) if block.is_mapped else (self._unmapped, 0)
        insort(pool[block.is_small], (size, block.address, block))

    def _remove(self, block: Block) -> None:
        pool, size = (self._free, block.size) if block.is_mapped else (self._unmapped, 0)
        listed = pool[block.is_small]
        del listed[bisect_left(listed, (size, block.address))]


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _page(is_small: bool) -> int:
    return _SMALL_SEGMENT if is_small else _LARGE_SEGMENT


def _room(block: Block) -> int:
    """Return the size that a free block can get by mapping what follows it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.is_mapped else 0)

"""Replays a training on the simulated CUDA allocator: peaks, and the smallest device on which it runs."""

from collections.abc import Sequence
from typing import NamedTuple

from dpprof.measure.passes.caching_allocator import Block, CachingAllocator, DeviceFull
from dpprof.record.ledger import Segments
from dpprof.vocabulary.grouping import grouped

# A storage's number, and its bytes from then on: 0 when it is freed.
Change = tuple[int, int]
# Segments grow for some steps, as blocks come to lie elsewhere each time: as many as a run has by default.
_STEPS, _STEPS_IF_SMALL = 13, 4
# Precision of the smallest device, relative to the peak.
_PRECISION = 0.005
# Larger devices on which the steps run, too, relative to the smallest.
_LARGER = (1.01, 1.02)


class DevicePeaks(NamedTuple):
    """Peak bytes in blocks in a training's last step, and bytes in segments after it."""

    allocated: int
    reserved: int


class AllocatedSteps:
    """The changes of a training's storages from the model's creation on, the last step's from `first` on.

    That step can be repeated: what it frees of the step before, it leaves behind anew.
    """

    def __init__(self, changes: Sequence[Change], first: int) -> None:
        self._before, self._step = changes[:first], changes[first:]
        held = {storage: num_bytes for storage, num_bytes in dict(self._before).items() if num_bytes}
        after = {storage: num_bytes for storage, num_bytes in (held | dict(self._step)).items() if num_bytes}
        born = [storage for storage in after if storage not in held]
        gone = [storage for storage in held if storage not in after]
        # Storages that the step leaves, with those of the step before that it frees: alike, and in order.
        self._renewed = _by_size(after, born, held, gone)

    def on_device(
        self, capacity: int | None = None, repeats: int = 0, *, expandable: bool = False
    ) -> DevicePeaks:
        """Return the peaks on a device with `capacity` bytes (None: without end). Raises DeviceFull."""
        allocator = CachingAllocator(capacity, expandable=expandable)
        blocks: dict[int, Block] = {}
        _apply(allocator, blocks, self._before)
        allocated = _apply(allocator, blocks, self._step)
        for _ in range(repeats):
            for new, old in self._renewed.items():
                blocks[old] = blocks.pop(new)
            _apply(allocator, blocks, self._step)
        return DevicePeaks(allocated, allocator.reserved)

    def segments(self) -> Segments:
        """Return what the allocator takes of a device for some steps."""
        repeats = _STEPS - 2  # besides the warm-up and the last step
        peaks = self.on_device(repeats=repeats)
        expandable = self.on_device(repeats=repeats, expandable=True)
        return Segments(peaks.reserved, self._smallest_device(peaks), expandable.reserved)

    def _smallest_device(self, peaks: DevicePeaks) -> int:
        """Return the least bytes, to half a percent, with which the steps run, and with 1 and 2 % more.

        A larger device can fail where a smaller one runs, as it gives segments back later.
        """
        low, high = peaks.allocated, peaks.reserved
        while True:
            while high - low > _PRECISION * peaks.allocated:
                middle = (low + high) // 2
                low, high = (low, middle) if self._runs(middle) else (middle, high)
            larger = (round(share * high) for share in _LARGER)
            failing = next((size for size in larger if size < peaks.reserved and not self._runs(size)), None)
            if failing is None:
                return high
            low, high = failing, peaks.reserved

    def _runs(self, capacity: int) -> bool:
        try:
            self.on_device(capacity, repeats=_STEPS_IF_SMALL - 2)
        except DeviceFull:
            return False
        return True


def _by_size(after: dict[int, int], born: list[int], held: dict[int, int], gone: list[int]) -> dict[int, int]:
    """Pair storages of the same size, and the others in their order."""
    of_size = grouped(gone, held.__getitem__)
    pairs = {new: of_size[after[new]].pop(0) for new in born if of_size.get(after[new])}
    paired = set(pairs.values())
    rest = (new for new in born if new not in pairs), (old for old in gone if old not in paired)
    return pairs | dict(zip(*rest, strict=False))


def _apply(allocator: CachingAllocator, blocks: dict[int, Block], changes: Sequence[Change]) -> int:
    """Make the changes, and return the peak bytes in blocks."""
    peak = allocator.allocated
    for storage, num_bytes in changes:
        block = blocks.pop(storage, None)
        if block is not None:
            allocator.free(block)
        if num_bytes:
            blocks[storage] = allocator.allocate(num_bytes)
        peak = max(peak, allocator.allocated)
    return peak

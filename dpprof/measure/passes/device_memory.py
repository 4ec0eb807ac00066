"""Replays a training on the simulated CUDA allocator: peaks, and the smallest device on which it runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dpprof.measure.passes.caching_allocator import AllocatorSettings, Block, CachingAllocator, DeviceFull
from dpprof.record.ledger import Segments

# A storage's number, and its bytes from then on: 0 when it is freed.
Change = tuple[int, int]
# Segments grow for some steps, as blocks come to lie elsewhere each time: as many as a run has by default.
_STEPS, _STEPS_IF_SMALL = 13, 4
# Precision of the smallest device, relative to the peak.
_PRECISION = 0.005


@dataclass(frozen=True)
class DevicePeaks:
    """Peak bytes in blocks in a training's last step, and bytes in segments after it."""

    allocated: int
    reserved: int


class AllocatedSteps:
    """The changes of a training's storages from the model's creation on, the last step's from `first` on.

    That step can be repeated: what it frees of the step before, it leaves behind anew.
    """

    def __init__(self, changes: Sequence[Change], first: int) -> None:
        self._before, self._step = changes[:first], changes[first:]
        held = _held({}, self._before)
        after = _held(held, self._step)
        born: dict[int, list[int]] = defaultdict(list)
        for storage, num_bytes in after.items():
            if storage not in held:
                born[num_bytes].append(storage)
        gone = [storage for storage in held if storage not in after]
        # Storages that the step frees, by those of the same size that it leaves.
        self._renewed = {born[held[old]].pop(0): old for old in gone if born[held[old]]}

    def on_device(
        self, capacity: int | None = None, settings: AllocatorSettings | None = None, repeats: int = 0
    ) -> DevicePeaks:
        """Return the peaks on a device with `capacity` bytes (None: without end). Raises DeviceFull."""
        allocator = CachingAllocator(capacity, settings)
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
        expandable = self.on_device(settings=AllocatorSettings(expandable_segments=True), repeats=repeats)
        return Segments(peaks.reserved, self._smallest_device(peaks), expandable.reserved)

    def _smallest_device(self, peaks: DevicePeaks) -> int:
        """Return the least bytes with which the steps run, between their peaks, to half a percent."""
        low, high = peaks.allocated, peaks.reserved
        while high - low > _PRECISION * peaks.allocated:
            middle = (low + high) // 2
            try:
                self.on_device(middle, repeats=_STEPS_IF_SMALL - 2)
            except DeviceFull:
                low = middle
            else:
                high = middle
        return high


def _held(held: dict[int, int], changes: Sequence[Change]) -> dict[int, int]:
    held = dict(held)
    for storage, num_bytes in changes:
        if num_bytes:
            held[storage] = num_bytes
        else:
            held.pop(storage, None)
    return held


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

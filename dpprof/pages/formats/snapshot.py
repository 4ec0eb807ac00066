"""A step's timeline as a memory snapshot for PyTorch's viewer (https://pytorch.org/memory_viz).

The dictionaries are those of `torch/cuda/memory.py`; allocations have categories, as in snapshots that
`torch.cuda._memory_viz` makes of CPU profiles. Storages present at the start are allocated then. The ledger
has no addresses: they are packed first-fit into one segment, and do not show fragmentation.
"""

import bisect
import pickle
import pickletools
from collections.abc import Sequence
from typing import Any

from dpprof.record.ledger import HeldTensor, StepTimeline
from dpprof.vocabulary.units import US_PER_S

# The viewer's own unpickler reads protocols 2 to 4.
_PROTOCOL = 4

Entry = dict[str, Any]


def pickled(timeline: StepTimeline) -> bytes:
    """Return the snapshot as the viewer's file."""
    return pickletools.optimize(pickle.dumps(snapshot(timeline), protocol=_PROTOCOL))


def snapshot(timeline: StepTimeline) -> Entry:
    """Convert a step's timeline, which must have its storages, to a memory snapshot."""
    allocator = _Allocator(timeline.storages)
    for index in range(timeline.num_present):
        allocator.resize(index, timeline.storages[index].num_bytes)
    for i, index in enumerate(timeline.storage_index):
        moved_to = timeline.moved_to[i]
        change = timeline.num_bytes[i] if moved_to is None else 0
        allocator.time_us = int(timeline.seconds[i] * US_PER_S)
        allocator.category[index] = moved_to or allocator.category[index]
        allocator.resize(index, allocator.size(index) + change)
    allocator.time_us = int(timeline.step_s * US_PER_S)
    return allocator.snapshot()


class _Allocator:
    """Writes the trace: places storages as they are created and frees them as they die."""

    def __init__(self, storages: Sequence[HeldTensor]) -> None:
        self.time_us = 0
        self.category = [storage.category for storage in storages]
        self._storages = storages
        self._addresses = _Addresses()
        self._entries: list[Entry] = []
        self._held: dict[int, Entry] = {}
        # Shared objects are pickled once.
        self._frames: dict[tuple[str, str], Entry] = {}
        self._stacks: dict[tuple[tuple[str, str], ...], list[Entry]] = {}

    def size(self, index: int) -> int:
        """Return the bytes that a storage has now."""
        return self._held[index]["size"] if index in self._held else 0

    def resize(self, index: int, num_bytes: int) -> None:
        """Free a storage's memory, if any, and allocate its new size, if not zero."""
        held = self._held.pop(index, None)
        if held is not None:
            self._addresses.give_back(held["addr"], held["size"])
            for action in ("free_requested", "free_completed"):
                self._add(action, held["addr"], held["size"], held["frames"])
        if num_bytes > 0:
            stack = self._stack(self._storages[index], self.category[index])
            entry = self._add("alloc", self._addresses.take(num_bytes), num_bytes, stack)
            entry["category"] = self.category[index]
            self._held[index] = entry

    def _add(self, action: str, addr: int, size: int, frames: list[Entry]) -> Entry:
        entry = Entry(action=action, addr=addr, size=size, stream=0, frames=frames, time_us=self.time_us)
        self._entries.append(entry)
        return entry

    def _stack(self, storage: HeldTensor, category: str) -> list[Entry]:
        """Return a storage's properties as frames, innermost first."""
        named = (
            ("operator", storage.operator),
            ("tensor", f"{storage.name} {storage.shape} {storage.dtype}".strip()),
            ("module", storage.module),
            ("phase", storage.phase or "outside phases"),
            ("category", category),
        )
        if named not in self._stacks:
            self._stacks[named] = [
                self._frames.setdefault((kind, name), Entry(filename=kind, line=0, name=name))
                for kind, name in named
                if name
            ]
        return self._stacks[named]

    def snapshot(self) -> Entry:
        """Return the trace so far, with storages alive now as blocks."""
        blocks: list[Entry] = []
        address = 0
        for entry in sorted(self._held.values(), key=lambda entry: entry["addr"]):
            if entry["addr"] > address:
                blocks.append(_block(address, entry["addr"] - address, "inactive", []))
            blocks.append(_block(entry["addr"], entry["size"], "active_allocated", entry["frames"]))
            address = entry["addr"] + entry["size"]
        total = self._addresses.total
        if total > address:
            blocks.append(_block(address, total - address, "inactive", []))
        held = sum(entry["size"] for entry in self._held.values())
        segment = Entry(
            device=0,
            address=0,
            total_size=total,
            stream=0,
            segment_type="large",
            segment_pool_id=(0, 0),
            allocated_size=held,
            active_size=held,
            frames=[],
            blocks=blocks,
        )
        # The viewer fails unless one of the categories is `unknown`.
        self._add("snapshot", 0, 0, [])["category"] = "unknown"
        return Entry(segments=[segment], device_traces=[self._entries])


def _block(address: int, size: int, state: str, frames: list[Entry]) -> Entry:
    return Entry(size=size, requested_size=size, address=address, state=state, frames=frames)


class _Addresses:
    """First-fit addresses from 0; `total` is the end of the last."""

    def __init__(self) -> None:
        self.total = 0
        self._gaps: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        for i, (start, length) in enumerate(self._gaps):
            if length >= size:
                self._gaps[i : i + 1] = [(start + size, length - size)] if length > size else []
                return start
        # A gap at the very end is extended.
        start = self.total
        if self._gaps and sum(self._gaps[-1]) == self.total:
            start = self._gaps.pop()[0]
        self.total = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free a range, merging it with adjacent gaps."""
        i = bisect.bisect(self._gaps, (start, 0))
        if i < len(self._gaps) and self._gaps[i][0] == start + size:
            size += self._gaps.pop(i)[1]
        if i > 0 and sum(self._gaps[i - 1]) == start:
            start, before = self._gaps.pop(i - 1)
            size, i = size + before, i - 1
        self._gaps.insert(i, (start, size))

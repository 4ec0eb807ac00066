"""A step's timeline as a memory snapshot that PyTorch's viewer opens (https://pytorch.org/memory_viz).

The dictionaries are those of `torch/cuda/memory.py`, and like `torch.cuda._memory_viz` of a CPU profile this
gives every allocation a category. What the step began with is allocated at its start. The ledger knows no
addresses: these are packed first-fit into one segment, so nothing can be read of fragmentation.
"""

import bisect
import pickle
import pickletools
from typing import NotRequired, TypedDict

from dpprof.record.ledger import HeldTensor, StepTimeline
from dpprof.vocabulary.units import US_PER_S

# The viewer's own unpickler reads protocols 2 to 4.
_PROTOCOL = 4


class Frame(TypedDict):
    """A line of what the viewer shows of an allocation."""

    filename: str
    line: int
    name: str


class TraceEntry(TypedDict):
    """Something that the allocator did; the category is an allocation's."""

    action: str
    addr: int
    size: int
    stream: int
    frames: list[Frame]
    time_us: int
    category: NotRequired[str]


class Block(TypedDict):
    """A piece of a segment, in use at the step's end or free."""

    size: int
    requested_size: int
    address: int
    state: str
    frames: list[Frame]


class Segment(TypedDict):
    """The memory that the blocks lie in."""

    device: int
    address: int
    total_size: int
    stream: int
    segment_type: str
    segment_pool_id: tuple[int, int]
    allocated_size: int
    active_size: int
    frames: list[Frame]
    blocks: list[Block]


class Snapshot(TypedDict):
    """What `torch.cuda.memory._snapshot` gives."""

    segments: list[Segment]
    device_traces: list[list[TraceEntry]]


def pickled(timeline: StepTimeline) -> bytes:
    """The snapshot as the file that the viewer opens."""
    return pickletools.optimize(pickle.dumps(snapshot(timeline), protocol=_PROTOCOL))


def snapshot(timeline: StepTimeline) -> Snapshot:
    """A step's timeline, which must have its storages, as a memory snapshot."""
    allocator = _Allocator()
    for index, storage in enumerate(timeline.storages[: timeline.num_present]):
        allocator.resize(index, storage, storage.num_bytes)
    for i, index in enumerate(timeline.storage_index):
        allocator.time_us = int(timeline.seconds[i] * US_PER_S)
        allocator.change(index, timeline.storages[index], timeline.num_bytes[i], timeline.moved_to[i])
    allocator.time_us = int(timeline.step_s * US_PER_S)
    return allocator.snapshot()


class _Allocator:
    """Writes the trace: gives every storage a place as it comes, and takes it back as it goes."""

    def __init__(self) -> None:
        self.time_us = 0
        self._places = _Places()
        self._entries: list[TraceEntry] = []
        self._held: dict[int, TraceEntry] = {}
        self._category: dict[int, str] = {}
        # The pickle holds once what is one object.
        self._frames: dict[tuple[str, str], Frame] = {}
        self._stacks: dict[tuple[tuple[str, str], ...], list[Frame]] = {}

    def change(self, index: int, storage: HeldTensor, num_bytes: int, moved_to: str | None) -> None:
        """A storage gets more or fewer bytes, or another category."""
        held = self._held[index]["size"] if index in self._held else 0
        if moved_to is None:
            self.resize(index, storage, held + num_bytes)
        else:
            self._category[index] = moved_to
            self.resize(index, storage, held)

    def resize(self, index: int, storage: HeldTensor, num_bytes: int) -> None:
        """Free what a storage has, if anything, and allocate what it shall have, if anything."""
        held = self._held.pop(index, None)
        if held is not None:
            self._places.give_back(held["addr"], held["size"])
            for action in ("free_requested", "free_completed"):
                self._add(action, held["addr"], held["size"], held["frames"])
        if num_bytes > 0:
            category = self._category.get(index, storage.category)
            stack = self._stack(storage, category)
            entry = self._add("alloc", self._places.take(num_bytes), num_bytes, stack)
            entry["category"] = category
            self._held[index] = entry

    def _add(self, action: str, addr: int, size: int, frames: list[Frame]) -> TraceEntry:
        entry = TraceEntry(action=action, addr=addr, size=size, stream=0, frames=frames, time_us=self.time_us)
        self._entries.append(entry)
        return entry

    def _stack(self, storage: HeldTensor, category: str) -> list[Frame]:
        """What is known of a storage, as frames: the innermost comes first."""
        named = (
            ("operator", storage.operator),
            ("tensor", f"{storage.name} {storage.shape} {storage.dtype}".strip()),
            ("module", storage.module),
            ("phase", storage.phase or "outside phases"),
            ("category", category),
        )
        if named not in self._stacks:
            self._stacks[named] = [self._frame(kind, name) for kind, name in named if name]
        return self._stacks[named]

    def _frame(self, kind: str, name: str) -> Frame:
        return self._frames.setdefault((kind, name), Frame(filename=kind, line=0, name=name))

    def snapshot(self) -> Snapshot:
        """The trace so far, with what is held now as blocks."""
        blocks: list[Block] = []
        place = 0
        for entry in sorted(self._held.values(), key=lambda entry: entry["addr"]):
            if entry["addr"] > place:
                blocks.append(_block(place, entry["addr"] - place, "inactive", []))
            blocks.append(_block(entry["addr"], entry["size"], "active_allocated", entry["frames"]))
            place = entry["addr"] + entry["size"]
        total = self._places.total
        if total > place:
            blocks.append(_block(place, total - place, "inactive", []))
        held = sum(entry["size"] for entry in self._held.values())
        segment = Segment(
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
        # The viewer fails on a trace with categories none of which is `unknown`.
        self._add("snapshot", 0, 0, [])["category"] = "unknown"
        return Snapshot(segments=[segment], device_traces=[self._entries])


def _block(address: int, size: int, state: str, frames: list[Frame]) -> Block:
    return Block(size=size, requested_size=size, address=address, state=state, frames=frames)


class _Places:
    """Addresses from 0 on; a place is the first gap that is large enough. `total` is where the last ends."""

    def __init__(self) -> None:
        self.total = 0
        self._gaps: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """A place of this size."""
        for i, (start, length) in enumerate(self._gaps):
            if length >= size:
                self._gaps[i : i + 1] = [(start + size, length - size)] if length > size else []
                return start
        # The last gap, if it ends where all ends, is only the beginning of the place.
        start = self.total
        if self._gaps and sum(self._gaps[-1]) == self.total:
            start = self._gaps.pop()[0]
        self.total = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Make a place a gap again, together with the gaps beside it."""
        i = bisect.bisect(self._gaps, (start, 0))
        if i < len(self._gaps) and self._gaps[i][0] == start + size:
            size += self._gaps.pop(i)[1]
        if i > 0 and sum(self._gaps[i - 1]) == start:
            start, before = self._gaps.pop(i - 1)
            size, i = size + before, i - 1
        self._gaps.insert(i, (start, size))

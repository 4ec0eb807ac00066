"""Ledger of a training step as plain data: `LedgerResult` is in `record.json`, all in `ledger.json.gz`."""

import dataclasses
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Self, TypeVar

from dpprof.errors import DpprofError
from dpprof.json_files import typed
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.formats import listed_first
from dpprof.vocabulary.theory import LayerRow

K = TypeVar("K")
# More than any machine has, and small enough to be summed in 64 bits.
_MOST_BYTES = 2**53


@dataclass
class TrafficRow:
    """One operator in one phase (None: between phases), summed over the step.

    `read` and `written` are bytes as defined in `measure/passes/traffic.py`. `fp32_flops` are the part of
    `flops` that multiplies fp32 matrices. `cached` are bytes that the device's last cache may hold; 0 where
    its size is not known. `predicted_s` are the seconds that `measure/passes/predictor.py` predicts, at least
    `least_s` and at most `most_s`: 0 where nothing is predicted. `host_s` is 0 but in folders of 0.3, where a
    GPU's host needs these seconds to issue the operator. `arithmetic_s` is the part of `predicted_s` in which
    computing takes longer than moving.
    """

    name: str
    operator_class: str
    phase: str | None
    calls: int
    read: int
    written: int
    flops: int
    cached: int = 0
    fp32_flops: int = 0
    predicted_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    host_s: float = 0.0
    arithmetic_s: float = 0.0


@dataclass
class CollectiveRow:
    """One collective in one phase (None: between): bytes of whole tensors, and bytes sent over a ring.

    `predicted_s` are predicted seconds, None where they are not known.
    """

    name: str
    phase: str | None
    calls: int = 0
    payload: int = 0
    sent: int = 0
    predicted_s: float | None = None


@dataclass(frozen=True)
class Moved:
    """Traffic and FLOPs of several operators together; fields as in `TrafficRow`."""

    read: int = 0
    written: int = 0
    flops: int = 0
    cached: int = 0
    fp32_flops: int = 0
    predicted_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    host_s: float = 0.0
    arithmetic_s: float = 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes read and written together."""
        return self.read + self.written

    def plus(self, other: TrafficRow) -> "Moved":
        """Return the sum of both."""
        names = [each.name for each in dataclasses.fields(Moved)]
        return Moved(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass
class PhasePeak:
    """Most bytes alive at any moment of a phase, over all its occurrences, and their categories."""

    num_bytes: int
    by_category: dict[str, int]


@dataclass
class PhaseTime:
    """Predicted seconds of a phase, and those in the fastest and in the slowest step (`least_s`, `most_s`).

    A GPU's host works for `host_s`, and issues so many `operators`. Both are 0 on a CPU.
    """

    seconds: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    host_s: float = 0.0
    operators: int = 0


@dataclass
class Doubt:
    """Something that an estimate cannot follow, and its most bytes beyond the estimate; None if unbounded."""

    name: str
    text: str
    num_bytes: int | None


@dataclass
class Segments:
    """Bytes that torch's CUDA allocator takes of a device for a training, in segments.

    `reserved` after the steps of a run, with memory to spare; `least` on the smallest device on which the
    steps run; `expandable` as `reserved`, with expandable segments.
    """

    reserved: int
    least: int
    expandable: int


@dataclass
class LedgerResult:
    """Bytes by category, and traffic. Empty categories are left out.

    `step_s` is the step time under the ledger: an overhead, not a latency. `num_storages` counts storages
    created in the step. `growth` is bytes alive at the step's end minus those at its start. `layers` are
    those that multiply matrices, `collectives` the communication of ranks. `doubts` are an estimate's, and
    `from_allocator` is what torch's CUDA allocator adds to its peak, by name, and `segments` what it takes of
    the device. `assumed_s` has the predicted seconds that do not rest on the device's own times, by what they
    rest on. `phase_s` are the predicted times of phases; a folder of 0.3 has those of rows alone.
    """

    peak: int
    peak_phase: str | None
    at_peak: dict[str, int]
    phase_peak: dict[str, PhasePeak]
    after_step: dict[str, int]
    traffic: list[TrafficRow]
    step_s: float
    num_storages: int
    growth: int = 0
    layers: list[LayerRow] = field(default_factory=list)
    collectives: list[CollectiveRow] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    from_allocator: dict[str, int] = field(default_factory=dict)
    segments: Segments | None = None
    assumed_s: dict[str, float] = field(default_factory=dict)
    phase_s: dict[str, PhaseTime] = field(default_factory=dict)

    def moved(self, by: Callable[[TrafficRow], K]) -> dict[K, Moved]:
        """Sum the traffic over rows for which `by` gives the same key, e.g. their phase."""
        sums: dict[K, Moved] = {}
        for row in self.traffic:
            sums[by(row)] = sums.get(by(row), Moved()).plus(row)
        return sums

    @property
    def moved_in_step(self) -> Moved:
        """Traffic of the whole step."""
        return self.moved(by=lambda row: None).get(None, Moved())

    @property
    def operators(self) -> set[str]:
        """Names of the operators that the step runs."""
        return {row.name for row in self.traffic}


@dataclass
class HeldTensor:
    """A storage: its size, purpose and origin.

    `shape` and `dtype` are those of a tensor over all of it. `name` is the parameter that it belongs to,
    `module` the one it was created for, where known. `phase` is None if it was created before the step or
    between phases.
    """

    num_bytes: int
    category: str
    shape: list[int]
    dtype: str
    name: str
    module: str
    phase: str | None
    operator: str


# Storages in `StepTimeline.to_dict`: a list for each field of `HeldTensor`.
_Columns = dataclasses.make_dataclass(
    "_Columns", [(each.name, GenericAlias(list, each.type)) for each in dataclasses.fields(HeldTensor)]
)


@dataclass
class PhaseMark:
    """One occurrence of a phase: seconds from the step's start, and its events as a range of indices."""

    name: str
    start: float
    end: float
    first_event: int
    end_event: int


@dataclass
class StepTimeline:
    """Every change of the bytes alive in one step, in order.

    `start` is the bytes alive at the beginning. Event i happened `seconds[i]` later and changed `category[i]`
    by `num_bytes[i]`; if `moved_to[i]` is set, these bytes moved to that category instead. `storages` are all
    that were ever alive, in order of creation, with their first size and category; the first `num_present`
    existed at the start. Event i concerns storage `storage_index[i]`.
    """

    start: dict[str, int]
    seconds: list[float]
    category: list[str]
    num_bytes: list[int]
    moved_to: list[str | None]
    phases: list[PhaseMark]
    step_s: float
    peak_event: int
    storages: list[HeldTensor]
    storage_index: list[int]
    num_present: int

    @property
    def categories(self) -> list[str]:
        """All categories in stacking order."""
        return listed_first((*self.start, *self.category, *filter(None, self.moved_to)), CATEGORIES)

    def changes(self) -> Iterator[list[tuple[str, int]]]:
        """Yield the categories that each event changes, with the change in bytes."""
        for category, num_bytes, moved_to in zip(self.category, self.num_bytes, self.moved_to, strict=True):
            if moved_to is None:
                yield [(category, num_bytes)]
            else:
                yield [(category, -num_bytes), (moved_to, num_bytes)]

    def alive_after(self, event: int) -> dict[int, HeldTensor]:
        """Return storages alive after an event (-1: at the start) with their sizes then, largest first."""
        began = self.storages[: self.num_present]
        held = {index: each.num_bytes for index, each in enumerate(began)}
        category: dict[int, str] = {}
        for i, index in enumerate(self.storage_index[: event + 1]):
            moved_to = self.moved_to[i]
            if moved_to is None:
                held[index] = held.get(index, 0) + self.num_bytes[i]
            else:
                category[index] = moved_to
        return {
            index: dataclasses.replace(each, num_bytes=num_bytes, category=category.get(index, each.category))
            for index, num_bytes in sorted(held.items(), key=lambda item: -item[1])
            if num_bytes > 0 and (each := self.storages[index])
        }

    @property
    def tensors(self) -> list[HeldTensor]:
        """Storages alive at the peak, largest first."""
        return [*self.alive_after(self.peak_event).values()]

    @property
    def num_tensors(self) -> int:
        """Number of storages alive at the peak."""
        return len(self.tensors)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the storages as columns to keep the file small."""
        data = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        columns = [each.name for each in dataclasses.fields(HeldTensor)]
        return data | {
            "phases": [dataclasses.asdict(phase) for phase in self.phases],
            "storages": {name: [getattr(each, name) for each in self.storages] for name in columns},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read the data of `to_dict`. Raises DpprofError if it is damaged."""
        found = typed(cls, {name: [] if name == "storages" else value for name, value in data.items()})
        columns = vars(typed(_Columns, data["storages"]))
        if len(set(map(len, columns.values()))) > 1:
            raise DpprofError("storages: its columns differ in length")
        found.storages = [HeldTensor(*row) for row in zip(*columns.values(), strict=True)]
        fault = found._fault()
        if fault:
            raise DpprofError(fault)
        return found

    def _fault(self) -> str | None:
        """Return a description of an inconsistency, if there is one."""
        num = len(self.seconds)
        events: list[Sized] = [self.category, self.num_bytes, self.moved_to, self.storage_index]
        if any(len(column) != num for column in events):
            return "the columns of its events differ in length"
        sizes = [*self.num_bytes, *self.start.values(), *(each.num_bytes for each in self.storages)]
        if any(abs(num_bytes) > _MOST_BYTES for num_bytes in sizes):
            return f"a size of more than {_MOST_BYTES} bytes"
        if not all(0 <= index < len(self.storages) for index in self.storage_index):
            return "storage_index: a storage that is not listed"
        named = {*self.start, *self.category, *self.moved_to}
        if not {each.category for each in self.storages} <= named:
            return "storages: a category that no event has"
        if not -1 <= self.peak_event < num or not 0 <= self.num_present <= len(self.storages):
            return "peak_event or num_present is out of range"
        if not all(0 <= phase.first_event <= phase.end_event <= num for phase in self.phases):
            return "phases: their events are out of range"
        return None

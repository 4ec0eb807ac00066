"""What the ledger found in one training step, as plain data: bytes, seconds, operators.

`LedgerResult` is part of `record.json`; together with the `StepTimeline` it is `ledger.json.gz`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

K = TypeVar("K")


@dataclass
class TrafficRow:
    """One operator in one phase (None: between phases), totalled over the step.

    `read` and `written` are bytes as `measure/passes/traffic.py` defines them, `flops` floating-point
    operations.
    """

    name: str
    operator_class: str
    phase: str | None
    calls: int
    read: int
    written: int
    flops: int


@dataclass(frozen=True)
class Moved:
    """Bytes that some operators read and write together, and their floating-point operations."""

    read: int = 0
    written: int = 0
    flops: int = 0

    @property
    def num_bytes(self) -> int:
        """Read and written together."""
        return self.read + self.written


@dataclass
class PhasePeak:
    """The most bytes alive at any moment of a phase, in all its occurrences, and what they were."""

    num_bytes: int
    by_category: dict[str, int]


@dataclass
class Doubt:
    """Something that an estimate cannot follow, in words, and by how many bytes at most it may raise what is
    needed; None if nothing bounds it.
    """

    name: str
    text: str
    num_bytes: int | None


@dataclass
class LedgerResult:
    """Bytes by category, and traffic. Categories that hold nothing are left out.

    `step_s` is how long the step took under the ledger: an overhead, not a latency. `num_storages` counts
    those born in the step. `block_rounding` is what the peak's storages take more in whole blocks of torch's
    CUDA allocator. `growth` is how much more is alive at the step's end than at its start. `doubts` are an
    estimate's.
    """

    peak: int
    peak_phase: str | None
    at_peak: dict[str, int]
    phase_peak: dict[str, PhasePeak]
    after_step: dict[str, int]
    traffic: list[TrafficRow]
    step_s: float
    num_storages: int
    block_rounding: int = 0
    growth: int = 0
    doubts: list[Doubt] = field(default_factory=list)

    def moved(self, by: Callable[[TrafficRow], K]) -> dict[K, Moved]:
        """What the step moves, summed over the rows for which `by` gives the same, e.g. their phase."""
        sums: dict[K, Moved] = {}
        for row in self.traffic:
            key = by(row)
            so_far = sums.get(key, Moved())
            sums[key] = Moved(so_far.read + row.read, so_far.written + row.written, so_far.flops + row.flops)
        return sums

    @property
    def moved_in_step(self) -> Moved:
        """What the whole step moves."""
        return self.moved(by=lambda row: None).get(None, Moved())

    @property
    def operators(self) -> set[str]:
        """The names of the operators that the step runs."""
        return {row.name for row in self.traffic}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made."""
        phase_peak = {phase: PhasePeak(**peak) for phase, peak in data["phase_peak"].items()}
        traffic = [TrafficRow(**row) for row in data["traffic"]]
        doubts = [Doubt(**doubt) for doubt in data.get("doubts", ())]
        return cls(**data | {"phase_peak": phase_peak, "traffic": traffic, "doubts": doubts})


@dataclass
class HeldTensor:
    """A storage alive at the peak: what it is for, and how it came about.

    `shape` and `dtype` are those of a tensor over the whole of it; `name` is the parameter that it belongs
    to, `module` the one that it was made for, where these are known.
    """

    num_bytes: int
    category: str
    shape: list[int]
    dtype: str
    name: str
    module: str
    phase: str | None
    operator: str


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

    `start` is what the step began with. Event i happened `seconds[i]` after that and changed `category[i]`
    by `num_bytes[i]`; if `moved_to[i]` is set, these bytes went over to that category instead.
    `tensors` are the largest storages alive at the peak, of `num_tensors` in all.
    """

    start: dict[str, int]
    seconds: list[float]
    category: list[str]
    num_bytes: list[int]
    moved_to: list[str | None]
    phases: list[PhaseMark]
    step_s: float
    peak_event: int
    tensors: list[HeldTensor]
    num_tensors: int

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made."""
        phases = [PhaseMark(**phase) for phase in data["phases"]]
        tensors = [HeldTensor(**tensor) for tensor in data["tensors"]]
        return cls(**data | {"phases": phases, "tensors": tensors})

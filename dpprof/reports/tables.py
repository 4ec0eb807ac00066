"""The tables of one experiment's ledger, as plain data: what fills the memory, and what moves."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpprof.figures.figures import Figures
from dpprof.figures.ledger import UNTRACKED, LedgerFigures, ledger_doubt
from dpprof.record.ledger import HeldTensor, LedgerResult, Moved, PhasePeak, StepTimeline
from dpprof.reports.norm_rows import NormRow, norm_rows
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.formats import fixed
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.units import MIB, mib

BETWEEN = "between phases"
BEFORE = "before the step"
ATEN = "aten::"
_UNLISTED_HELP = "as the trainer names it: dpprof lists no such category"
_UNTRACKED_HELP = "held by the allocator beyond what the ledger saw: workspaces and rounding"


def phase_order(phase: str | None) -> int:
    """For sorting: phases as a step goes through them, then unknown ones, then what lies between phases."""
    return len(PHASES) + (phase is None) if phase not in PHASES else PHASES.index(phase)


def shape_words(shape: list[int]) -> str:
    """A tensor's shape as a reader says it."""
    return " x ".join(map(str, shape)) or "scalar"


@dataclass(frozen=True)
class Share:
    """A category at one moment; `pct` of all that is alive then."""

    category: str
    mib: float
    pct: float
    meaning: str


@dataclass(frozen=True)
class PhaseRow:
    """A phase's memory and traffic. `allocator_mib` is the peak that the allocator itself tells, if known."""

    phase: str
    peak_mib: float
    allocator_mib: float | None
    largest: str
    ms: float | None


@dataclass(frozen=True)
class TensorRow:
    """A storage alive at the peak. `owner` is its parameter or the module that it was made for."""

    mib: float
    category: str
    owner: str
    shape: str
    dtype: str
    phase: str
    operator: str


@dataclass(frozen=True)
class MovedRow:
    """Bytes that a phase or an operator class reads and writes; `intensity` in FLOP per byte."""

    name: str
    read_mib: float
    written_mib: float
    gflop: float

    @property
    def moved_mib(self) -> float:
        """Read and written together."""
        return self.read_mib + self.written_mib

    @property
    def intensity(self) -> float | None:
        """Floating-point operations per byte moved."""
        return self.gflop * 1e9 / (self.moved_mib * MIB) if self.moved_mib else None


@dataclass(frozen=True)
class LedgerTables:
    """All tables. Shares and tensors come largest first, phases in the order in which they run.

    `peak_mib` is the ledger's peak; `held_mib` is what the shares `at_peak` sum to, with what the allocator
    held beyond the ledger's. `allocator_mib` is the allocator's own peak, if known.
    """

    peak_mib: float
    held_mib: float
    allocator_mib: float | None
    is_estimate: bool
    peak_phase: str
    unexplained_pct: float | None
    at_peak: list[Share]
    after_step: list[Share]
    phases: list[PhaseRow]
    tensors: list[TensorRow]
    num_tensors: int
    by_phase: list[MovedRow]
    by_class: list[MovedRow]
    moved: MovedRow
    norms: list[NormRow]

    @property
    def seen(self) -> list[Share]:
        """The shares of what the ledger saw, in percent of its peak."""
        shares = (share for share in self.at_peak if share.category != UNTRACKED)
        return [dataclasses.replace(share, pct=100 * share.mib / self.peak_mib) for share in shares]

    @property
    def origin(self) -> str:
        """What `held_mib` rests on, in words."""
        if self.allocator_mib is None:
            return "this comes from the ledger alone, as the allocator's own peak is not known"
        if self.allocator_mib < self.peak_mib:
            return f"the ledger tells it; the allocator's own peak is {fixed(self.allocator_mib, 2)} MiB"
        seen, beyond = fixed(self.peak_mib, 2), fixed(self.held_mib - self.peak_mib, 2)
        if self.held_mib == self.peak_mib:
            return "tensors take all of it" if self.is_estimate else "the ledger sees all of it"
        if self.is_estimate:
            return f"tensors take {seen} MiB of it, the allocator adds {beyond} MiB"
        return f"the ledger sees {seen} MiB of it, {beyond} MiB are untracked"

    @property
    def doubt(self) -> str | None:
        """Why the ledger should not be trusted, if so."""
        return ledger_doubt(self.unexplained_pct)


def compute(
    figures: Figures, of_ledger: LedgerFigures, ledger: LedgerResult, timeline: StepTimeline
) -> LedgerTables:
    """The tables of a run with a ledger, from its figures and the ledger itself."""
    return LedgerTables(
        peak_mib=of_ledger.peak_mib,
        held_mib=sum(of_ledger.at_peak_mib.values()),
        allocator_mib=figures.memory.peak_allocated_mib,
        is_estimate=figures.estimate is not None,
        peak_phase=ledger.peak_phase or BETWEEN,
        unexplained_pct=of_ledger.unexplained_pct,
        at_peak=_shares(of_ledger.at_peak_mib),
        after_step=_shares({category: mib(held) for category, held in ledger.after_step.items()}),
        phases=[
            _phase(figures, phase, peak) for phase, peak in ledger.phase_peak.items() if peak.by_category
        ],
        tensors=_tensors(timeline),
        num_tensors=timeline.num_tensors,
        by_phase=_rows(ledger.moved(by=lambda row: row.phase or BETWEEN), ledger.phase_peak),
        by_class=sorted(
            _rows(ledger.moved(by=lambda row: row.operator_class)), key=lambda row: -row.moved_mib
        ),
        moved=_row("step", ledger.moved_in_step),
        norms=norm_rows(ledger.layers),
    )


def _phase(figures: Figures, name: str, peak: PhasePeak) -> PhaseRow:
    phase = figures.phases[name]
    return PhaseRow(
        phase=name,
        peak_mib=mib(peak.num_bytes),
        allocator_mib=phase.allocator_peak_mib,
        largest=max(peak.by_category.items(), key=lambda item: item[1])[0],
        ms=phase.ms,
    )


def _shares(by_category_mib: dict[str, float]) -> list[Share]:
    total = sum(by_category_mib.values())
    meanings = CATEGORIES | {UNTRACKED: _UNTRACKED_HELP}
    shares = [
        Share(category, held, 100 * held / total, meanings.get(category, _UNLISTED_HELP))
        for category, held in by_category_mib.items()
    ]
    return sorted(shares, key=lambda share: -share.mib)


def made_in(tensor: HeldTensor, *, was_present: bool) -> str:
    """Where a storage was made; `was_present` says that the step began with it."""
    return tensor.phase or (BEFORE if was_present else BETWEEN)


def _tensors(timeline: StepTimeline) -> list[TensorRow]:
    if not timeline.storages:
        return [_tensor(tensor, made_in(tensor, was_present=True)) for tensor in timeline.largest]
    return [
        _tensor(tensor, made_in(tensor, was_present=index < timeline.num_present))
        for index, tensor in timeline.alive_after(timeline.peak_event).items()
    ]


def _tensor(tensor: HeldTensor, phase: str) -> TensorRow:
    return TensorRow(
        mib=mib(tensor.num_bytes),
        category=tensor.category,
        owner=tensor.name or tensor.module,
        shape=shape_words(tensor.shape),
        dtype=tensor.dtype,
        phase=phase,
        operator=tensor.operator.removeprefix(ATEN),
    )


def _rows(moved: Mapping[str, Moved], first: Iterable[str] = ()) -> list[MovedRow]:
    """A row for each name: those of `first`, whether anything moved there or not, then the others."""
    return [_row(name, moved.get(name, Moved())) for name in dict.fromkeys([*first, *moved])]


def _row(name: str, moved: Moved) -> MovedRow:
    return MovedRow(name, mib(moved.read), mib(moved.written), moved.flops / 1e9)

"""Tables of one experiment's ledger, as plain data: what fills the memory, and what moves."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dpprof.record.figures.figures import Figures, PhaseFigures
from dpprof.record.figures.ledger import UNTRACKED, LedgerFigures, ledger_doubt
from dpprof.record.ledger import HeldTensor, LedgerResult, Moved, StepTimeline
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.colors import CLASS_COLORS
from dpprof.vocabulary.formats import fixed, listed_first, size
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.theory import LayerRow
from dpprof.vocabulary.units import MIB, mib

BETWEEN = "between phases"
BEFORE = "before the step"
_UNLISTED_HELP = "as the trainer names it: dpprof lists no such category"
_UNTRACKED_HELP = "held by the allocator beyond what the ledger saw: workspaces and rounding"


def phase_order(phase: str | None) -> int:
    """Return a sort key: phases in the order of a step, then unknown ones, then None (between phases)."""
    return len(PHASES) + (phase is None) if phase not in PHASES else PHASES.index(phase)


@dataclass(frozen=True)
class Share:
    """Memory of a category at one moment; `pct` of all that is alive then."""

    category: str
    mib: float
    pct: float
    meaning: str


class PhaseRow(NamedTuple):
    """A phase with its memory and time, and the largest category at its peak."""

    phase: str
    figures: PhaseFigures
    largest: str


class TensorRow(NamedTuple):
    """A storage in words. `owner` is its parameter, or the module that it was made for; `phase` made it."""

    mib: float
    category: str
    owner: str
    shape: str
    dtype: str
    phase: str
    operator: str


@dataclass(frozen=True)
class MovedRow:
    """Bytes that a phase or an operator class reads and writes, and its GFLOP."""

    name: str
    read_mib: float
    written_mib: float
    gflop: float

    @property
    def moved_mib(self) -> float:
        """MiB read and written together."""
        return self.read_mib + self.written_mib

    @property
    def intensity(self) -> float | None:
        """Floating-point operations per byte moved."""
        return self.gflop * 1e9 / (self.moved_mib * MIB) if self.moved_mib else None


@dataclass(frozen=True)
class LedgerTables:
    """All tables. Shares and tensors come largest first, phases in the order in which they run.

    `held_mib` sums `at_peak`, with what the allocator held beyond the ledger; `allocator_mib` is its own
    peak. `by_both` has the operator classes of each phase. `norms` has the layers for which the trainer
    chose a form, those of one shape and form together.
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
    by_both: dict[str, list[MovedRow]]
    moved: MovedRow
    norms: list[list[LayerRow]]

    @property
    def seen(self) -> list[Share]:
        """Shares of what the ledger saw, in percent of its peak."""
        shares = (share for share in self.at_peak if share.category != UNTRACKED)
        return [dataclasses.replace(share, pct=100 * share.mib / self.peak_mib) for share in shares]

    @property
    def origin(self) -> str:
        """Source of `held_mib`, in words."""
        if self.allocator_mib is None:
            return "this comes from the ledger alone, as the allocator's own peak is not known"
        if self.allocator_mib < self.peak_mib:
            return f"the ledger tells it; the allocator's own peak is {fixed(self.allocator_mib, 2)} MiB"
        seen, beyond = fixed(self.peak_mib, 2), size(self.held_mib - self.peak_mib)
        if self.held_mib == self.peak_mib:
            return "tensors take all of it" if self.is_estimate else "the ledger sees all of it"
        if self.is_estimate:
            return f"tensors take {seen} MiB of it, the allocator adds {beyond}"
        return f"the ledger sees {seen} MiB of it, {beyond} is untracked"

    @property
    def doubt(self) -> str | None:
        """Reason not to trust the ledger, if there is one."""
        return ledger_doubt(self.unexplained_pct)


def compute(
    figures: Figures, of_ledger: LedgerFigures, ledger: LedgerResult, timeline: StepTimeline
) -> LedgerTables:
    """Return the tables of a run with a ledger, from its figures and the ledger itself."""
    by_phase = _rows(ledger.moved(by=lambda row: row.phase or BETWEEN), ledger.phase_peak)
    return LedgerTables(
        peak_mib=of_ledger.peak_mib,
        held_mib=sum(of_ledger.at_peak_mib.values()),
        allocator_mib=figures.peak_mib,
        is_estimate=figures.estimate is not None,
        peak_phase=ledger.peak_phase or BETWEEN,
        unexplained_pct=of_ledger.unexplained_pct,
        at_peak=_shares(of_ledger.at_peak_mib),
        after_step=_shares({category: mib(held) for category, held in ledger.after_step.items()}),
        phases=[
            PhaseRow(phase, figures.phases[phase], max(held, key=lambda category: held[category]))
            for phase, peak in ledger.phase_peak.items()
            if (held := peak.by_category)
        ],
        tensors=_tensors(timeline),
        num_tensors=timeline.num_tensors,
        by_phase=by_phase,
        by_class=sorted(
            _rows(ledger.moved(by=lambda row: row.operator_class)), key=lambda row: -row.moved_mib
        ),
        by_both={row.name: _classes(ledger, row.name) for row in by_phase},
        moved=_row("step", ledger.moved_in_step),
        norms=list(grouped((row for row in ledger.layers if row.norm), lambda r: (r.shape, r.norm)).values()),
    )


def _shares(by_category_mib: dict[str, float]) -> list[Share]:
    total = sum(by_category_mib.values())
    meanings = CATEGORIES | {UNTRACKED: _UNTRACKED_HELP}
    shares = [
        Share(category, held, 100 * held / total, meanings.get(category, _UNLISTED_HELP))
        for category, held in by_category_mib.items()
    ]
    return sorted(shares, key=lambda share: -share.mib)


def tensor_row(held: HeldTensor, *, was_present: bool) -> TensorRow:
    """Describe a storage; `was_present` says that the step began with it."""
    return TensorRow(
        mib=mib(held.num_bytes),
        category=held.category,
        owner=held.name or held.module,
        shape=" x ".join(map(str, held.shape)) or "scalar",
        dtype=held.dtype,
        phase=held.phase or (BEFORE if was_present else BETWEEN),
        operator=held.operator.removeprefix("aten::"),
    )


def _tensors(timeline: StepTimeline) -> list[TensorRow]:
    alive = timeline.alive_after(timeline.peak_event)
    return [tensor_row(held, was_present=i < timeline.num_present) for i, held in alive.items()]


def _rows(moved: Mapping[str, Moved], first: Iterable[str] = ()) -> list[MovedRow]:
    """Return a row for each name: all of `first`, even where nothing moved, then the others."""
    return [_row(name, moved.get(name, Moved())) for name in dict.fromkeys([*first, *moved])]


def _classes(ledger: LedgerResult, phase: str) -> list[MovedRow]:
    """Return the operator classes of a phase."""
    moved = ledger.moved(by=lambda row: (row.phase or BETWEEN, row.operator_class))
    names = listed_first((name for of, name in moved if of == phase), CLASS_COLORS)
    return [_row(name, moved[phase, name]) for name in names]


def _row(name: str, moved: Moved) -> MovedRow:
    return MovedRow(name, mib(moved.read), mib(moved.written), moved.flops / 1e9)

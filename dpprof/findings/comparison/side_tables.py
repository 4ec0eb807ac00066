"""Tables beside the cells: trainers, privacy, FLOPs, counters, estimates, failures, how it was measured."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.run import Run
from dpprof.record.figures.capacity import device_of
from dpprof.record.figures.names import (
    DRAM_READ,
    DRAM_TO_LEDGER,
    DRAM_WRITTEN,
    FLOOR,
    FLOPS_IN_THEORY,
    FLOPS_OF_LAYERS,
    KERNEL_MS,
    L2_READ,
    L2_WRITTEN,
    LEDGER_PEAK,
    PEAK,
    STEP,
)
from dpprof.record.figures.privacy import rounded_up
from dpprof.record.figures.results import FAILED, FINISHED
from dpprof.record.figures.verdicts import FAIL
from dpprof.record.record import PrivacyResult
from dpprof.vocabulary.formats import fixed
from dpprof.vocabulary.trainers import trainer_info, trainer_order


@dataclass(frozen=True)
class TrainerRow:
    """One trainer's runs. `mean_peak_mib` is over those that finished; None if none has a peak."""

    trainer: str
    num_finished: int
    num_runs: int
    mean_peak_mib: float | None


def trainer_rows(comparison: Comparison) -> list[TrainerRow]:
    """Return a row for each trainer."""
    return [
        _trainer_row(comparison, trainer)
        for trainer in sorted({cell.trainer for cell in comparison.cells}, key=trainer_order)
    ]


def _trainer_row(comparison: Comparison, trainer: str) -> TrainerRow:
    runs = [run for cell in comparison.cells if cell.trainer == trainer for run in cell.runs]
    finished = [run for run in runs if run.status == FINISHED]
    peaks = [run.figures[PEAK] for run in finished if PEAK in run.figures]
    return TrainerRow(trainer, len(finished), len(runs), statistics.fmean(peaks) if peaks else None)


@dataclass(frozen=True)
class Where:
    """The cell of a row: its trainer, model and place."""

    trainer: str
    model: str
    place: str

    @classmethod
    def of(cls, comparison: Comparison, cell: Cell) -> Self:
        """Name a cell."""
        return cls(cell.trainer, comparison.model(cell).label, comparison.place_name(cell))


@dataclass(frozen=True)
class PrivacyRow:
    """The privacy guarantee of one cell."""

    where: Where
    guarantee: PrivacyResult

    @property
    def epsilon(self) -> str:
        """Epsilon rounded up, or `none`."""
        return "none" if self.guarantee.epsilon is None else rounded_up(self.guarantee.epsilon)


def privacy_rows(comparison: Comparison) -> list[PrivacyRow]:
    """Return the cells on a data set of known size, in order."""
    return [
        PrivacyRow(Where.of(comparison, cell), found)
        for cell in comparison.cells
        if (found := guarantee_of(cell)) is not None
    ]


def guarantee_of(cell: Cell) -> PrivacyResult | None:
    """Return a cell's guarantee: of several runs, the first without an epsilon, if there is one."""
    found = [run.privacy for run in cell.finished if run.privacy is not None]
    return min(found, key=lambda one: one.epsilon is not None, default=None)


def privacy_doubts(comparison: Comparison) -> Iterator[str]:
    """List what weakens a guarantee or leaves a run without one, each sentence once."""
    runs = [run for cell in comparison.cells for run in cell.finished if run.privacy is not None]
    notes = [note for run in runs for note in (run.privacy.notes if run.privacy else ())]
    for note in dict.fromkeys(notes):
        yield f"Privacy: {note} ({notes.count(note)} of {len(runs)} runs)."


_GIGA = 1e9


@dataclass(frozen=True)
class FlopRow:
    """GFLOP of a cell's linear layers and convolutions; `ratio` is the theory's to standard training."""

    where: Where
    counted: float
    in_theory: float
    ratio: float | None

    @property
    def off_pct(self) -> float:
        """Excess of the count over the theory, in percent."""
        return 100 * (self.counted / self.in_theory - 1)


def flop_rows(comparison: Comparison) -> list[FlopRow]:
    """Return the finished cells whose trainer has a formula, in order."""
    cells = [cell for cell in comparison.cells if cell.finished and cell.figures.get(FLOPS_IN_THEORY)]
    return [
        FlopRow(
            where=Where.of(comparison, cell),
            counted=cell.figures[FLOPS_OF_LAYERS] / _GIGA,
            in_theory=cell.figures[FLOPS_IN_THEORY] / _GIGA,
            ratio=_ratio_in_theory(cell, comparison.standard(cell)),
        )
        for cell in cells
    ]


def _ratio_in_theory(cell: Cell, standard: Cell | None) -> float | None:
    of_standard = standard.figures.get(FLOPS_IN_THEORY) if standard else None
    return cell.figures[FLOPS_IN_THEORY] / of_standard if of_standard else None


# Names, and commonly expected ratios to standard training, of bytes at one level in one direction.
EXPECTED = {
    DRAM_READ: ("DRAM read", 2.0, 5.0),
    DRAM_WRITTEN: ("DRAM written", 2.0, 5.0),
    L2_READ: ("L2 read", 1.5, 3.0),
    L2_WRITTEN: ("L2 written", 1.5, 3.0),
}
_IN_WORDS = (
    "Commonly expected of DP-SGD: 2 to 5 times the DRAM traffic of standard training, 1.5 to 3 times its L2 "
    "traffic."
)
_LISTED = 4


@dataclass(frozen=True)
class CountedBytes:
    """MiB that a step moves at one level. `side` is `below` or `above` if the ratio is not as expected."""

    mib: float | None
    ratio: float | None
    side: str | None


@dataclass(frozen=True)
class CounterRow:
    """One cell's counters, `moved` in the order of `EXPECTED`.

    `dram_to_ledger` is DRAM bytes over those that operators ask for.
    """

    where: Where
    kernel_ms: float
    moved: list[CountedBytes]
    dram_to_ledger: float | None

    @property
    def is_private(self) -> bool:
        """True if its trainer is private, and so compared with standard training."""
        return trainer_info(self.where.trainer).is_private


def counter_rows(comparison: Comparison) -> list[CounterRow]:
    """Return the finished cells that have counters, in order."""
    return [
        CounterRow(
            where=Where.of(comparison, cell),
            kernel_ms=cell.figures[KERNEL_MS],
            moved=[_moved(comparison, cell, metric) for metric in EXPECTED],
            dram_to_ledger=cell.figures.get(DRAM_TO_LEDGER),
        )
        for cell in comparison.cells
        if cell.finished and KERNEL_MS in cell.figures
    ]


def _moved(comparison: Comparison, cell: Cell, metric: str) -> CountedBytes:
    _, low, high = EXPECTED[metric]
    ratio = comparison.ratio(cell, metric)
    side = None
    if ratio is not None and trainer_info(cell.trainer).is_private:
        side = "below" if ratio < low else "above" if ratio > high else None
    return CountedBytes(cell.figures.get(metric), ratio, side)


def judgement(rows: list[CounterRow]) -> list[str]:
    """Compare ratios with what is commonly expected, in sentences; empty without a ratio."""
    if not any(moved.ratio for row in rows if row.is_private for moved in row.moved):
        return []
    return [_IN_WORDS, *(_disagreements(rows) or ["What was counted agrees."])]


def _disagreements(rows: list[CounterRow]) -> list[str]:
    sentences = []
    for index, (name, low, high) in enumerate(EXPECTED.values()):
        for side, limit in (("below", low), ("above", high)):
            found = [row for row in rows if row.moved[index].side == side]
            if found:
                listed = ", ".join(_row_in_words(row, index) for row in found[:_LISTED])
                more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
                sentences.append(f"{name}: {side} {limit:g} times standard: {listed}{more}.")
    return sentences


def _row_in_words(row: CounterRow, index: int) -> str:
    return f"{row.where.trainer} at {row.where.model}, {row.where.place} ({fixed(row.moved[index].ratio, 2)})"


@dataclass(frozen=True)
class Pair:
    """One experiment estimated and measured; None where a side does not tell.

    The estimate must agree with `ledger_mib`, the peak under the ledger; `allocator_mib` is torch's
    allocator's. `floor_ms` is known if the device measured is the one estimated for.
    """

    name: str
    estimated_mib: float
    ledger_mib: float | None
    estimated_allocator_mib: float | None
    allocator_mib: float | None
    floor_ms: float | None
    step_ms: float | None

    @property
    def ledger_off_pct(self) -> float | None:
        """Excess of the estimated peak of the tensors over the measured one, in percent."""
        return _off_pct(self.estimated_mib, self.ledger_mib)

    @property
    def allocator_off_pct(self) -> float | None:
        """Excess of the estimated peak of the allocator over the measured one, in percent."""
        return _off_pct(self.estimated_allocator_mib, self.allocator_mib)

    @property
    def to_floor(self) -> float | None:
        """Measured step time over the floor."""
        return self.step_ms / self.floor_ms if self.step_ms and self.floor_ms else None


def pairs(comparison: Comparison) -> list[Pair]:
    """Return every estimate with its measurement, in the order of the cells."""
    measured = {cell.experiment: cell for cell in comparison.cells if not cell.is_estimate and cell.finished}
    found = [(cell, measured.get(cell.experiment)) for cell in comparison.cells if cell.is_estimate]
    return [_made_pair(estimate, twin) for estimate, twin in found if estimate.finished and twin is not None]


def without_paired(comparison: Comparison) -> Comparison:
    """Return the comparison without estimates of experiments that were measured too."""
    measured = {cell.experiment for cell in comparison.cells if not cell.is_estimate and cell.finished}
    kept = [c for c in comparison.cells if not c.is_estimate or c.experiment not in measured]
    return Comparison(comparison.name, kept)


def _made_pair(estimate: Cell, twin: Cell) -> Pair:
    device = device_of(estimate.config)
    is_same_device = device is not None and device.is_named(twin.environment.get("gpu", ""))
    return Pair(
        name=twin.runs[0].name,
        estimated_mib=estimate.figures[LEDGER_PEAK],
        ledger_mib=twin.figures.get(LEDGER_PEAK),
        estimated_allocator_mib=estimate.figures.get(PEAK),
        allocator_mib=twin.figures.get(PEAK),
        floor_ms=estimate.figures.get(FLOOR) if is_same_device else None,
        step_ms=twin.figures.get(STEP),
    )


def _off_pct(estimated: float | None, measured: float | None) -> float | None:
    return 100 * (estimated / measured - 1) if estimated is not None and measured else None


_LONGEST = 300


@dataclass(frozen=True)
class FailedRun:
    """A run that failed, or whose later pass or gradient check did, and why."""

    name: str
    failure: str
    reason: str


def failed_runs(comparison: Comparison) -> list[FailedRun]:
    """Return the runs that failed (even for lack of memory), or whose later pass or gradient check did."""
    return [
        FailedRun(
            run.name,
            run.failure or ("later pass" if run.failed_passes else "gradient check"),
            reason(run),
        )
        for cell in comparison.cells
        for run in cell.runs
        if run.status == FAILED or run.failure or run.failed_passes or run.gradient_check == FAIL
    ]


def reason(run: Run) -> str:
    """Return why a run, or a pass of it, failed, in one line."""
    reasons = [run.reason] if run.reason else []
    reasons += [f"{name} pass: {why}" for name, why in run.failed_passes.items()]
    if run.gradient_check == FAIL:
        reasons.append(f"gradient check: {run.gradient_check_reason}")
    first_lines = [why.strip().splitlines()[0] if why.strip() else "" for why in reasons]
    return "; ".join(first_lines)[:_LONGEST]


def how_measured(comparison: Comparison) -> list[dict[str, str]]:
    """Return a row of texts for each source; values that its cells share appear once."""
    rows = []
    for source in comparison.sources:
        cells = [cell for cell in comparison.cells if cell.source == source]
        row = {"source": source, "runs of a cell": _values(len(cell.runs) for cell in cells)}
        row |= {
            name.replace("_", " "): _values(cell.settings[name] for cell in cells)
            for name in ("warmup_steps", "measured_steps", "passes", "device", "precision")
        }
        environments = [environment for cell in cells for environment in cell.environments]
        row |= {
            name.replace("_", " "): _values(environment.get(name, "") for environment in environments)
            for name in dict.fromkeys(name for environment in environments for name in environment)
        }
        rows.append(row)
    return rows


def _values(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))

"""Where a DP trainer's extra bytes and milliseconds go, against standard training at the same place."""

from dataclasses import dataclass

from dpprof.figures.names import MOVED, PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.best import SAME_PEAK
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.findings.parts import Parts, fold_backward, parts_of
from dpprof.reports.comparison.intervals import Ratio, step_ratio
from dpprof.reports.comparison.places import full_name, size_of
from dpprof.vocabulary.formats import signed, size
from dpprof.vocabulary.trainers import STANDARD, short_name, trainer_info


@dataclass(frozen=True)
class Peak:
    """A peak, and the phase in which the ledger sees it."""

    mib: float
    phase: str | None

    def __str__(self) -> str:
        return size(self.mib) + (f" in {self.phase}" if self.phase else "")


@dataclass(frozen=True)
class ExtraMemory:
    """Two peaks; `parts` by category, None where they are the same or the ledger does not tell."""

    peak: Peak
    standard: Peak
    parts: Parts | None

    def __str__(self) -> str:
        text = f"Memory: a peak of {self.peak} against {self.standard}"
        if self.parts is not None:
            text += f": {signed(self.parts.difference)} MiB, by {self.parts}"
        return f"{text}."


@dataclass(frozen=True)
class ExtraTime:
    """How many times the step of standard training takes; `parts` by phase, None within the spread."""

    ratio: Ratio
    parts: Parts | None

    def __str__(self) -> str:
        spread = "" if self.ratio.between_runs else ", from one run each"
        interval = f"95 % interval {self.ratio.low:.2f} to {self.ratio.high:.2f}{spread}"
        told = "no clear difference"
        if self.parts is not None:
            told = f"{signed(self.parts.difference)} ms, by {self.parts}"
        return f"Time: {self.ratio.value:.2f} x the step ({interval}): {told}."


@dataclass(frozen=True)
class DisturbedTime:
    """A ratio of step times that nothing should rest on."""

    ratio: float

    def __str__(self) -> str:
        doubt = "but runs were disturbed: repeat them before you rely on this"
        return f"Time: {self.ratio:.2f} x the step, {doubt}."


@dataclass(frozen=True)
class ExtraTraffic:
    """MiB moved in a step, and the parts of the difference by phase and by operator class."""

    moved_mib: float
    by_phase: Parts
    by_class: Parts

    def __str__(self) -> str:
        return (
            f"Traffic: {size(self.moved_mib)} moved in a step, {signed(self.by_phase.difference)} MiB: "
            f"by phase {self.by_phase}; by operator class {self.by_class}."
        )


@dataclass(frozen=True)
class Extra:
    """What one DP trainer needs more than StandardTrainer; None where it was not measured."""

    trainer: str
    place: str
    memory: ExtraMemory | None
    time: ExtraTime | DisturbedTime | None
    traffic: ExtraTraffic | None


def extras(comparison: Comparison) -> list[Extra]:
    """Each DP trainer's, at the largest place where it and StandardTrainer finished."""
    largest: dict[str, tuple[Cell, Cell]] = {}
    for cell in comparison.cells:
        twin = comparison.standard(cell)
        if not trainer_info(cell.trainer).is_private or not cell.finished or twin is None:
            continue
        if cell.trainer not in largest or size_of(cell) > size_of(largest[cell.trainer][0]):
            largest[cell.trainer] = (cell, twin)
    found = [_extra(comparison, cell, twin) for cell, twin in largest.values()]
    return [extra for extra in found if extra.memory or extra.time or extra.traffic]


def say(extra: Extra) -> Finding[Extra]:
    """A point for each of memory, time and traffic."""
    points = [str(part) for part in (extra.memory, extra.time, extra.traffic) if part is not None]
    against = f"Against {short_name(STANDARD)} at {extra.place}:"
    return Finding(short_name(extra.trainer), against, extra, points)


def _extra(comparison: Comparison, cell: Cell, twin: Cell) -> Extra:
    is_disturbed = comparison.is_disturbed_at(cell)
    return Extra(
        trainer=cell.trainer,
        place=full_name(comparison, cell),
        memory=_memory(cell, twin),
        time=_disturbed_time(cell, twin) if is_disturbed else _time(cell, twin),
        traffic=_traffic(cell, twin),
    )


def _memory(cell: Cell, twin: Cell) -> ExtraMemory | None:
    if PEAK not in cell.figures or PEAK not in twin.figures:
        return None
    peak, standard = (Peak(c.figures[PEAK], c.representative[0].peak_phase) for c in (cell, twin))
    difference = peak.mib - standard.mib
    parts = None
    if abs(difference) > SAME_PEAK * standard.mib and cell.at_peak and twin.at_peak:
        parts = parts_of(cell.at_peak, twin.at_peak, difference)
    return ExtraMemory(peak, standard, parts)


def _time(cell: Cell, twin: Cell) -> ExtraTime | None:
    ratio = step_ratio(cell, twin)
    if ratio is None:
        return None
    if not ratio.is_clear:
        return ExtraTime(ratio, None)
    difference = cell.figures[STEP] - twin.figures[STEP]
    return ExtraTime(ratio, parts_of(fold_backward(cell.phase_ms), fold_backward(twin.phase_ms), difference))


def _disturbed_time(cell: Cell, twin: Cell) -> DisturbedTime | None:
    if STEP not in cell.figures or STEP not in twin.figures:
        return None
    return DisturbedTime(cell.figures[STEP] / twin.figures[STEP])


def _traffic(cell: Cell, twin: Cell) -> ExtraTraffic | None:
    if MOVED not in cell.figures or MOVED not in twin.figures:
        return None
    difference = cell.figures[MOVED] - twin.figures[MOVED]
    phases = fold_backward(cell.moved_by_phase), fold_backward(twin.moved_by_phase)
    return ExtraTraffic(
        moved_mib=cell.figures[MOVED],
        by_phase=parts_of(*phases, difference),
        by_class=parts_of(_by_class(cell), _by_class(twin), difference),
    )


def _by_class(cell: Cell) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in cell.representative[0].moved:
        found[row.operator_class] = found.get(row.operator_class, 0.0) + row.mib
    return found

"""The largest batch: where memory ran out, or where the lines through the peaks would reach its end."""

import math
from dataclasses import dataclass

from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.growth import Line, phase_lines
from dpprof.reports.comparison.places import full_name
from dpprof.vocabulary.formats import joined, memory, size
from dpprof.vocabulary.trainers import short_name, trainer_info

_TOPIC = "Largest batch"
_LISTED = 3


@dataclass(frozen=True)
class Shortage:
    """A place where memory ran out: the trainers that lacked it, and those that finished."""

    place: str
    lacking: tuple[str, ...]
    fitting: tuple[str, ...]


@dataclass(frozen=True)
class Shortages:
    """Every place where memory ran out."""

    places: tuple[Shortage, ...]


@dataclass(frozen=True)
class Reach:
    """The batch at which the line through one phase's peaks reaches the device's memory."""

    trainer: str
    batch: int
    phase: str
    mib_per_sample: float


@dataclass(frozen=True)
class Extrapolation:
    """What each DP trainer reaches in its tightest phase, the largest batch first: nothing of it was run.

    `batches` are those measured; `place` leaves the batch out.
    """

    model: str
    place: str
    batches: tuple[int, ...]
    limit_mib: float
    reaches: tuple[Reach, ...]


def shortages(comparison: Comparison) -> Shortages | None:
    """Where memory ran out; None if it did nowhere."""
    found = []
    for place in comparison.places:
        lack = [cell for cell in place if cell.failure == "oom"]
        if lack:
            fits = tuple(cell.trainer for cell in place if cell.finished)
            lacking = tuple(cell.trainer for cell in lack)
            found.append(Shortage(full_name(comparison, lack[0]), lacking, fits))
    return Shortages(tuple(found)) if found else None


def extrapolate(comparison: Comparison) -> Extrapolation | None:
    """The settings under which the lines of two or more DP trainers reach the device's memory first."""
    found = _reaches(comparison)
    tightest = min(found, key=lambda reaches: min(r.batch for r, _, _ in reaches), default=[])
    if len(tightest) < 2:
        return None
    ordered = sorted(tightest, key=lambda reach: -reach[0].batch)
    _, limit_mib, line = ordered[0]
    return Extrapolation(
        line.model, line.place, tuple(line.x), limit_mib, tuple(reach for reach, _, _ in ordered)
    )


def say(found: Shortages | Extrapolation) -> Finding[Shortages | Extrapolation]:
    """What was found in a sentence."""
    text = _ran_out(found) if isinstance(found, Shortages) else _extended(found)
    return Finding(_TOPIC, text, found)


def _ran_out(found: Shortages) -> str:
    texts = [
        f"at {short.place} memory ran out with {_named(short.lacking)}"
        + (f", while {_named(short.fitting)} fitted" if short.fitting else "")
        for short in found.places
    ]
    more = f"; and at {len(texts) - _LISTED} more places" if len(texts) > _LISTED else ""
    text = "; ".join(texts[:_LISTED]) + more
    return f"{text[0].upper()}{text[1:]}."


def _named(trainers: tuple[str, ...]) -> str:
    return joined([short_name(trainer) for trainer in trainers])


def _extended(found: Extrapolation) -> str:
    each = ", ".join(
        f"{short_name(reach.trainer)} {reach.batch:,} "
        f"({size(reach.mib_per_sample)} a sample in {reach.phase})"
        for reach in found.reaches
    )
    return (
        f"No experiment ran out of memory. For {found.model}, {found.place}, the largest batches that fit "
        f"the {memory(found.limit_mib)} of this device are at most about: {each}. This is extrapolated from "
        f"the peaks of each phase at batch {joined([str(batch) for batch in found.batches])}, not measured: "
        "the peaks may grow faster."
    )


def _reaches(comparison: Comparison) -> list[list[tuple[Reach, float, Line]]]:
    """For DP trainers under settings that differ in the batch alone: what each reaches in its tightest phase,
    with the device's memory in MiB and the line.

    A line through the peaks of whole steps would mix phases, as the peak moves to another one with the batch.
    """
    phases = dict.fromkeys(phase for cell in comparison.cells for phase in cell.peak_by_phase)
    found: dict[tuple[str, str, str], dict[str, tuple[Reach, float, Line]]] = {}
    for phase in phases:
        for line in phase_lines(comparison, phase):
            limit = _limit(comparison, line)
            if limit is None or line.slope <= 0 or not trainer_info(line.trainer).is_private:
                continue
            batch = math.floor((limit - line.fixed) / line.slope + 1e-6)  # fitted: 9.999999 is 10
            reach = Reach(line.trainer, batch, phase, line.slope)
            trainers = found.setdefault((line.model, line.place, line.source), {})
            known = trainers.get(line.trainer)
            if known is None or batch < known[0].batch:
                trainers[line.trainer] = (reach, limit, line)
    return [list(trainers.values()) for trainers in found.values()]


def _limit(comparison: Comparison, line: Line) -> float | None:
    """The memory of the device that a line's cells ran on."""
    found = (cell.limit_mib for cell in comparison.cells if _ran_on_its_device(cell, line))
    return next(found, None)


def _ran_on_its_device(cell: Cell, line: Line) -> bool:
    is_of_line = (cell.trainer, cell.source) == (line.trainer, line.source)
    return is_of_line and bool(cell.finished) and not cell.is_estimate

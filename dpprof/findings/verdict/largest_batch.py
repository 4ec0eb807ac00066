"""The largest batch: where memory ran out, or an extrapolation of the peaks to the device's memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.growth import Line, lines
from dpprof.findings.comparison.places import full_name
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.names import PEAK
from dpprof.record.record import FailureKind
from dpprof.vocabulary.formats import joined, memory, size
from dpprof.vocabulary.trainers import short_name, trainer_info

_TOPIC = "Largest batch"
_LISTED = 3


@dataclass(frozen=True)
class Reach:
    """Batch at which the line through one phase's peaks reaches the device's memory."""

    batch: int
    limit_mib: float
    line: Line


def shortages(comparison: Comparison) -> Finding | None:
    """Say where memory ran out, and with which trainers; None if it did nowhere."""
    texts = []
    for place in comparison.places:
        lack = [cell for cell in place if cell.failure == FailureKind.OOM]
        if lack:
            fits = [cell for cell in place if cell.finished]
            fitted = f", while {_named(fits)} fitted" if fits else ""
            texts.append(f"at {full_name(comparison, lack[0])} memory ran out with {_named(lack)}{fitted}")
    if not texts:
        return None
    more = f"; and at {len(texts) - _LISTED} more places" if len(texts) > _LISTED else ""
    text = "; ".join(texts[:_LISTED]) + more
    return Finding(_TOPIC, f"{text[0].upper()}{text[1:]}.")


def _named(cells: Sequence[Cell]) -> str:
    return joined([short_name(cell.trainer) for cell in cells])


def extrapolated(comparison: Comparison) -> Finding | None:
    """Tell the batches that DP trainers are likely to reach; None for fewer than two of them."""
    reaches = extrapolate(comparison)
    if not reaches:
        return None
    line = reaches[0].line
    each = ", ".join(
        f"{short_name(one.line.trainer)} {one.batch:,} ({size(one.line.slope)} a sample in {one.line.phase})"
        for one in reaches
    )
    text = (
        f"No experiment ran out of memory. For {line.model}, {line.place}, the largest batches that fit "
        f"the {memory(reaches[0].limit_mib)} of this device are at most about: {each}. This is extrapolated "
        f"from the peaks of each phase at batch {joined(list(map(str, line.x)))}, not measured: the peaks "
        "may grow faster."
    )
    return Finding(_TOPIC, text)


def extrapolate(comparison: Comparison) -> list[Reach]:
    """Return the batch that each DP trainer reaches in its tightest phase, the largest first.

    They are those of the settings where a trainer runs out of memory first; empty for fewer than two trainers
    there. A line through the peaks of whole steps would mix phases, as the peak moves to another with the
    batch.
    """
    phases = dict.fromkeys(phase for cell in comparison.cells for phase in cell.peak_by_phase)
    found: dict[tuple[str, str, str], dict[str, Reach]] = {}
    for line in (line for phase in phases for line in lines(comparison, PEAK, "batch_size", phase)):
        limit = _limit(comparison, line)
        if limit is None or line.slope <= 0 or not trainer_info(line.trainer).is_private:
            continue
        batch = math.floor((limit - line.fixed) / line.slope + 1e-6)  # fitted: 9.999999 is 10
        trainers = found.setdefault((line.model, line.place, line.source), {})
        if line.trainer not in trainers or batch < trainers[line.trainer].batch:
            trainers[line.trainer] = Reach(batch, limit, line)
    groups = [sorted(trainers.values(), key=lambda one: -one.batch) for trainers in found.values()]
    tightest = min(groups, key=lambda reaches: reaches[-1].batch, default=[])
    return tightest if len(tightest) > 1 else []


def _limit(comparison: Comparison, line: Line) -> float | None:
    """Return the memory of the device on which the line's cells ran."""
    of_line = [c for c in comparison.cells if (c.trainer, c.source) == (line.trainer, line.source)]
    return next((cell.limit_mib for cell in of_line if cell.finished and not cell.is_estimate), None)

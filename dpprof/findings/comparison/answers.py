"""Answers to the first questions: each trainer's largest batch, its time for samples, and its bound."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.record.figures.names import LEDGER_PEAK, MEAN_BATCH, NEEDED, PREDICTIONS, STEP
from dpprof.record.figures.step import TimeRange
from dpprof.record.record import FailureKind
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.trainers import trainer_order
from dpprof.vocabulary.units import MS_PER_S

SAMPLES = 1000
# Peaks of two batches tell of batches up to this many times the larger one.
_FARTHEST = 16
# What a step is bound by, in the order of `Bound`.
BOUNDS = ("memory", "compute", "launches")


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch of a trainer: one that fitted, or `is_extrapolated` from the peaks of others.

    `lacking` is the smallest that ran out of memory, None if none did. `batch` is 0 if none fitted. With
    `is_more` a larger one fits, which peaks of much smaller ones do not tell.
    """

    batch: int
    lacking: int | None = None
    is_extrapolated: bool = False
    is_more: bool = False


@dataclass(frozen=True)
class Answer:
    """One trainer at the places that differ in the batch alone.

    `cell` is that of the largest batch that finished: it takes `seconds` for 1,000 samples, and `bound` takes
    `share_pct` of that. What is not known is None.
    """

    trainer: str
    cell: Cell | None
    largest: LargestBatch | None
    seconds: TimeRange | None
    bound: str | None
    share_pct: float | None


def answers(comparison: Comparison) -> Iterator[tuple[str, list[Answer]]]:
    """Yield the answers of all trainers, for each model, device and settings."""
    groups = grouped(
        comparison.cells,
        lambda cell: (comparison.model(cell).label, comparison.place_name(cell, without="batch_size")),
    )
    for (model, place), cells in groups.items():
        by_trainer = grouped(cells, lambda cell: cell.trainer)
        trainers = sorted(by_trainer, key=trainer_order)
        yield f"{model}, {place}", [_answer(name, by_trainer[name]) for name in trainers]


def _answer(trainer: str, cells: Sequence[Cell]) -> Answer:
    finished = sorted((cell for cell in cells if cell.finished), key=lambda cell: cell.config.batch_size)
    cell = finished[-1] if finished else None
    bound = cell.step.bound if cell is not None and cell.step is not None else None
    shares = dict(zip(BOUNDS, bound[:3], strict=True)) if bound is not None else {}
    most = max(shares, key=lambda name: shares[name], default=None)
    return Answer(
        trainer,
        cell,
        _largest(cells, finished),
        None if cell is None else _seconds(cell),
        most,
        None if most is None else 100 * shares[most],
    )


def _seconds(cell: Cell) -> TimeRange | None:
    """Return the seconds for 1,000 samples, on all ranks together."""
    config, figures = cell.config, cell.figures
    batch = config.estimated_batch if cell.is_estimate else figures.get(MEAN_BATCH, config.batch_size)
    samples = batch * config.accumulation_steps * config.world_size
    found = [figures[name] for name in PREDICTIONS if name in figures]
    if STEP in figures and not cell.is_disturbed:
        found = [figures[STEP]] * 3
    return TimeRange(*found).times(SAMPLES / samples / MS_PER_S) if found else None


def _largest(cells: Sequence[Cell], finished: Sequence[Cell]) -> LargestBatch | None:
    """Return the largest batch that was tried, or that peaks of two batches tell; None if neither is known.

    A line goes through the peaks of each phase, as the peak moves to another with the batch. What the device
    needs beside tensors is that of the largest batch.
    """
    lacking = [c.config.batch_size for c in cells if c.failure == FailureKind.OOM or c.fits is False]
    fitting = [c.config.batch_size for c in finished if c.fits is not False]
    if lacking:
        smaller = [batch for batch in fitting if batch < min(lacking)]
        return LargestBatch(max(smaller, default=0), min(lacking))
    told = [cell for cell in finished if cell.peak_by_phase]
    limit = told[-1].limit_mib if told else None
    is_one = len({cell.config.batch_size for cell in told}) < 2
    if limit is None or is_one or any(cell.config.poisson_sampling for cell in told):
        return None
    few, many = told[0], told[-1]
    added = many.figures.get(NEEDED, many.peak_mib or 0.0) - many.figures.get(LEDGER_PEAK, 0.0)
    found = math.inf
    for phase, peak in many.peak_by_phase.items():
        before = few.peak_by_phase.get(phase, peak)
        slope = (peak - before) / (many.config.batch_size - few.config.batch_size)
        if slope > 0:
            found = min(found, many.config.batch_size + (limit - added - peak) / slope)
    most = _FARTHEST * many.config.batch_size
    return LargestBatch(math.floor(min(found, most)), is_extrapolated=True, is_more=found > most)

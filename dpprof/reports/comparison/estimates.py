"""Estimates beside measurements of the same experiments: how far off they are, and how close to the floor."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap

from dpprof.figures.capacity import doubt_words
from dpprof.figures.results import device_name
from dpprof.reports.comparison.cells import PEAK, STEP, Cell, Comparison, Run
from dpprof.vocabulary.formats import memory

_LISTED_CELLS = 6


@dataclass(frozen=True)
class Pair:
    """One experiment estimated and measured: MiB and ms; None where a side does not tell.

    `ledger_mib` is the peak under the ledger, in which the estimate's has to agree, `allocator_mib` the one
    that torch's allocator reports. `floor_ms` is there where the device measured is the one estimated for.
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
        """How much higher the estimated peak of the tensors is, in percent."""
        return _off_pct(self.estimated_mib, self.ledger_mib)

    @property
    def allocator_off_pct(self) -> float | None:
        """How much higher the estimated peak of the allocator is, in percent."""
        return _off_pct(self.estimated_allocator_mib, self.allocator_mib)

    @property
    def to_floor(self) -> float | None:
        """How many times the floor the measured step takes."""
        return self.step_ms / self.floor_ms if self.step_ms and self.floor_ms else None


def pairs(comparison: Comparison) -> list[Pair]:
    """Every estimate with its measurement, in the order of the cells."""
    measured = {cell.experiment: cell for cell in comparison.cells if not cell.is_estimate and cell.finished}
    found = [(cell, measured.get(cell.experiment)) for cell in comparison.cells if cell.is_estimate]
    return [_pair(estimate, twin) for estimate, twin in found if estimate.finished and twin is not None]


def without_paired(comparison: Comparison) -> Comparison:
    """The comparison without estimates of experiments that were measured too: these speak for themselves."""
    measured = {cell.experiment for cell in comparison.cells if not cell.is_estimate and cell.finished}
    kept = [c for c in comparison.cells if not c.is_estimate or c.experiment not in measured]
    return Comparison(comparison.name, kept)


def rests_on(runs: list[Run]) -> list[str]:
    """What some estimates rest on, in sentences, each thing once; a doubt with its largest size."""
    doubts: dict[str, int | None] = {}
    for run in runs:
        for text, num_bytes in run.doubts.items():
            known = doubts.get(text, 0)
            doubts[text] = None if num_bytes is None or known is None else max(known, num_bytes)
    texts = [text for run in runs for text in run.reservations]
    return list(dict.fromkeys([*texts, *starmap(doubt_words, doubts.items())]))


def fit_sentences(cells: list[Cell], at: Callable[[Cell], str]) -> Iterator[str]:
    """Which estimates fit the device that they are held against, which do not, and which nobody can tell of.

    `at` gives a cell's place in words.
    """
    by_device: dict[str, list[Cell]] = {}
    for cell in cells:
        if "memory/capacity_mib" in cell.figures:
            by_device.setdefault(device_name(cell.config), []).append(cell)
    for device, held in by_device.items():
        lack = [cell for cell in held if cell.figures.get("memory/fits") == 0]
        unclear = [cell for cell in held if "memory/fits" not in cell.figures]
        if not lack and not unclear:
            yield f"By these estimates {device} holds every one of the {len(held)} experiments."
        if lack:
            yield f"{len(lack)} of {len(held)} do not fit {device}: {_with_needs(lack, at)}."
        if unclear:
            yield (
                f"{len(unclear)} of {len(held)} may or may not fit {device}, as what is in doubt decides: "
                f"{_with_needs(unclear, at)}."
            )


def _with_needs(cells: list[Cell], at: Callable[[Cell], str]) -> str:
    each = ", ".join(
        f"{cell.trainer} at {at(cell)} ({memory(cell.figures['memory/needed_mib'])})"
        for cell in cells[:_LISTED_CELLS]
    )
    return each + (f" and {len(cells) - _LISTED_CELLS} more" if len(cells) > _LISTED_CELLS else "")


def _pair(estimate: Cell, twin: Cell) -> Pair:
    is_same_device = _is_device(estimate.config.estimating.target, twin.environment.get("gpu", ""))
    return Pair(
        name=twin.runs[0].name,
        estimated_mib=estimate.figures["ledger/peak_mib"],
        ledger_mib=twin.figures.get("ledger/peak_mib"),
        estimated_allocator_mib=estimate.figures.get(PEAK),
        allocator_mib=twin.figures.get(PEAK),
        floor_ms=estimate.figures.get("floor/step_ms") if is_same_device else None,
        step_ms=twin.figures.get(STEP),
    )


def _is_device(target: str, gpu: str) -> bool:
    """Whether a GPU's own name, as `NVIDIA A100-SXM4-80GB`, has every word of a target's, as `A100-80GB`."""
    return set(target.split("-")) <= set(re.split(r"[^A-Za-z0-9]+", gpu))


def _off_pct(estimated: float | None, measured: float | None) -> float | None:
    return 100 * (estimated / measured - 1) if estimated is not None and measured else None

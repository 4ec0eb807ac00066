"""What was estimated and not measured, what that rests on, and whether it fits its device."""

from dataclasses import dataclass
from itertools import starmap

from dpprof.figures.capacity import doubt_words
from dpprof.figures.names import CAPACITY, FITS, NEEDED
from dpprof.figures.results import device_name
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.estimates import without_paired
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import full_name
from dpprof.reports.comparison.run import Run
from dpprof.vocabulary.formats import memory
from dpprof.vocabulary.trainers import short_name

_LISTED = 6


@dataclass(frozen=True)
class Estimated:
    """How many experiments of how many were not run, and what their figures rest on, in words.

    `is_measured_too` says that some of them were measured as well, and that the measurements count.
    """

    num_estimated: int
    num_experiments: int
    is_measured_too: bool
    rests_on: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """What one estimated experiment needs of its device."""

    trainer: str
    place: str
    needed_mib: float


@dataclass(frozen=True)
class Fit:
    """Whether estimated experiments fit a device: all of `num_experiments` do, or those of `cells` do not;
    None: what is in doubt decides for those of `cells`.
    """

    device: str
    num_experiments: int
    fits: bool | None
    cells: tuple[Need, ...] = ()


def estimated(comparison: Comparison) -> Estimated | None:
    """What was estimated of a comparison; None if nothing was."""
    cells = _estimated_cells(comparison)
    if not cells:
        return None
    return Estimated(
        num_estimated=len(cells),
        num_experiments=len(comparison.cells),
        is_measured_too=len(comparison.cells) > len(without_paired(comparison).cells),
        rests_on=tuple(_rests_on([run for cell in cells for run in cell.finished])),
    )


def fits(comparison: Comparison) -> list[Fit]:
    """Which estimates fit the device that they are held against, which do not, and of which nothing tells."""
    by_device: dict[str, list[Cell]] = {}
    for cell in _estimated_cells(comparison):
        if CAPACITY in cell.figures:
            by_device.setdefault(device_name(cell.config), []).append(cell)
    found = []
    for device, held in by_device.items():
        lack = tuple(_need(comparison, cell) for cell in held if cell.figures.get(FITS) == 0)
        unclear = tuple(_need(comparison, cell) for cell in held if FITS not in cell.figures)
        if not lack and not unclear:
            found.append(Fit(device, len(held), True))
        if lack:
            found.append(Fit(device, len(held), False, lack))
        if unclear:
            found.append(Fit(device, len(held), None, unclear))
    return found


def say(found: Estimated) -> Finding[Estimated]:
    """What was not run, with a point for each thing that the estimates rest on."""
    count = f"{found.num_estimated} of {found.num_experiments} experiments were not run"
    if found.num_estimated == found.num_experiments:
        count = "Nothing was run"
    text = (
        f"{count}: the figures come from fake tensors, which have shapes but no data. They leave out what "
        "the allocator loses to fragmentation."
    )
    if found.is_measured_too:
        text += " Where an experiment was measured too, the measurement counts."
    if found.rests_on:
        text += " The estimates rest on these assumptions:"
    return Finding("Estimated", text, found, [f"{t[0].upper()}{t[1:]}." for t in found.rests_on])


def say_fit(found: Fit) -> Finding[Fit]:
    """Whether the device holds the experiments, in a sentence."""
    some = f"{len(found.cells)} of {found.num_experiments}"
    if found.fits:
        text = (
            f"All {found.num_experiments} experiments fit {found.device}, as estimated."
            if found.num_experiments > 1
            else f"The experiment fits {found.device}, as estimated."
        )
    elif found.fits is None:
        text = f"{some} may or may not fit {found.device}, as parts are in doubt: {_listed(found.cells)}."
    else:
        text = f"{some} do not fit {found.device}: {_listed(found.cells)}."
    return Finding("Fits", text, found)


def _estimated_cells(comparison: Comparison) -> list[Cell]:
    return [cell for cell in comparison.cells if cell.is_estimate and cell.finished]


def _need(comparison: Comparison, cell: Cell) -> Need:
    return Need(cell.trainer, full_name(comparison, cell), cell.figures[NEEDED])


def _listed(cells: tuple[Need, ...]) -> str:
    each = ", ".join(
        f"{short_name(c.trainer)} at {c.place} ({memory(c.needed_mib)})" for c in cells[:_LISTED]
    )
    return each + (f" and {len(cells) - _LISTED} more" if len(cells) > _LISTED else "")


def _rests_on(runs: list[Run]) -> list[str]:
    """What some estimates rest on, each thing once; a doubt with its largest size."""
    doubts: dict[str, int | None] = {}
    for run in runs:
        for text, num_bytes in run.doubts.items():
            known = doubts.get(text, 0)
            doubts[text] = None if num_bytes is None or known is None else max(known, num_bytes)
    texts = [text for run in runs for text in run.assumptions]
    return list(dict.fromkeys([*texts, *starmap(doubt_words, doubts.items())]))

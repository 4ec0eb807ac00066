"""The privacy guarantees of a comparison: a row for each cell that has one, and what weakens them."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.figures.privacy import rounded_up
from dpprof.record.privacy import PrivacyResult
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison


@dataclass(frozen=True)
class PrivacyRow:
    """One cell: the training that the accountant was asked about, and its answer."""

    trainer: str
    model: str
    place: str
    guarantee: PrivacyResult

    @property
    def epsilon(self) -> str:
        """Epsilon, or that there is none."""
        return "none" if self.guarantee.epsilon is None else rounded_up(self.guarantee.epsilon)


def privacy_rows(comparison: Comparison) -> list[PrivacyRow]:
    """The cells on a data set of known size, in order."""
    return [
        PrivacyRow(cell.trainer, comparison.model(cell).label, comparison.place_name(cell), found)
        for cell in comparison.cells
        if (found := guarantee_of(cell)) is not None
    ]


def guarantee_of(cell: Cell) -> PrivacyResult | None:
    """The guarantee of a cell: with several runs the first without an epsilon, if there is one."""
    found = [run.privacy for run in cell.finished if run.privacy is not None]
    return min(found, key=lambda one: one.epsilon is not None, default=None)


def privacy_doubts(comparison: Comparison) -> Iterator[str]:
    """What weakens a guarantee or leaves a run without one, once for each sentence."""
    runs = [run for cell in comparison.cells for run in cell.finished if run.privacy is not None]
    notes = [note for run in runs for note in (run.privacy.notes if run.privacy else ())]
    for note in dict.fromkeys(notes):
        yield f"Privacy: {note} ({notes.count(note)} of {len(runs)} runs)."

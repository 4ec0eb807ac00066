"""What the ranks of an experiment send each other, with each trainer."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.figures.names import EXPOSED, EXPOSED_PCT, SENDING, SENT
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import full_name
from dpprof.vocabulary.formats import memory, milliseconds
from dpprof.vocabulary.trainers import short_name


@dataclass(frozen=True)
class Sent:
    """What a rank sends in a step with a trainer. `least_ms` is the least time that this takes; `exposed_ms`
    is what the slowest rank's step took longer than alone, `exposed_pct` that in percent of the step. Each is
    None where it is not known.
    """

    trainer: str
    mib: float
    least_ms: float | None = None
    exposed_ms: float | None = None
    exposed_pct: float | None = None

    def __str__(self) -> str:
        text = f"{memory(self.mib)} with {short_name(self.trainer)}"
        if self.least_ms is not None:
            return f"{text} ({milliseconds(self.least_ms)})"
        if self.exposed_ms is not None and self.exposed_pct is not None:
            return f"{text} ({milliseconds(self.exposed_ms)} exposed, {self.exposed_pct:.0f} % of the step)"
        return text


@dataclass(frozen=True)
class Communication:
    """What ranks send at one place."""

    place: str
    sent: tuple[Sent, ...]


def communications(comparison: Comparison) -> list[Communication]:
    """What ranks send, at each place with several."""
    found = []
    for cells in comparison.places:
        sent = tuple(_sent(cells))
        if sent:
            found.append(Communication(full_name(comparison, cells[0]), sent))
    return found


def _sent(cells: list[Cell]) -> Iterator[Sent]:
    for cell in cells:
        if cell.finished and SENT in cell.figures:
            figures = (SENDING, EXPOSED, EXPOSED_PCT)
            yield Sent(cell.trainer, cell.figures[SENT], *(cell.figures.get(name) for name in figures))


def say(found: list[Communication]) -> Finding[list[Communication]]:
    """A point for each place."""
    is_timed = any(sent.least_ms is not None for one in found for sent in one.sent)
    is_measured = any(sent.exposed_ms is not None for one in found for sent in one.sent)
    times = ", and the least time that this takes" if is_timed else ""
    times += ", and how much longer the step takes than alone" if is_measured else ""
    points = [f"{one.place}: {', '.join(map(str, one.sent))}." for one in found]
    return Finding("Communication", f"What each rank sends to others in a step{times}:", found, points)

"""The roofline of a comparison, as plain data: every phase of every cell against its machine's ceilings."""

from dataclasses import dataclass
from functools import cached_property

from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.roofline.points import Point, points
from dpprof.reports.roofline.roofs import Given, Roof, roof_key, roofs


@dataclass(frozen=True)
class Row:
    """A point against its ceilings: the percentages of both that it reaches, and the one that binds it."""

    point: Point
    copy_pct: float | None
    matmul_pct: float | None
    binds: str | None


@dataclass(frozen=True)
class Section:
    """One cell: its phases and the step, under one roof. Figures are the median of `num_runs` runs."""

    label: str
    trainer: str
    num_runs: int
    roof: Roof
    rows: list[Row]

    @property
    def title(self) -> str:
        """The label, and what the figures are if there are several runs."""
        return self.label if self.num_runs == 1 else f"{self.label} (medians of {self.num_runs} runs)"


@dataclass(frozen=True)
class Roofline:
    """All that the page shows. `left_out` says which cells have no rows, and why."""

    name: str
    sections: list[Section]
    left_out: list[str]
    steps: str

    @cached_property
    def roofs(self) -> list[Roof]:
        """The roofs of the sections, each once, those of which no ceiling is known too."""
        return list({(s.roof.device, s.roof.precision): s.roof for s in self.sections}.values())

    @property
    def has_ceilings(self) -> bool:
        """Whether any ceiling is known."""
        return any(roof.copy or roof.matmul for roof in self.roofs)

    @cached_property
    def sources(self) -> set[str]:
        """Where bytes and seconds come from, over all rows."""
        return {row.point.source for section in self.sections for row in section.rows}


def compute(comparison: Comparison, given: Given) -> Roofline:
    """Every cell that has a ledger or hardware counters; an estimate has none, as nothing ran."""
    measured = [cell for cell in comparison.cells if not cell.is_estimate]
    found = {id(cell): points(cell) for cell in measured}
    drawn = [cell for cell in measured if found[id(cell)]]
    under = roofs(measured, given)
    return Roofline(
        name=comparison.name,
        sections=[_section(comparison, cell, under[roof_key(cell)], found[id(cell)]) for cell in drawn],
        left_out=_left_out(len(comparison.cells) - len(measured), len(measured) - len(drawn)),
        steps=comparison.steps,
    )


def _section(comparison: Comparison, cell: Cell, roof: Roof, found: list[Point]) -> Section:
    return Section(
        label=f"{cell.trainer}, {comparison.model(cell).label}, {comparison.place_name(cell)}",
        trainer=cell.trainer,
        num_runs=len(cell.representative),
        roof=roof,
        rows=[_row(point, roof) for point in found],
    )


def _row(point: Point, roof: Roof) -> Row:
    copy, matmul = roof.copy, roof.matmul
    return Row(
        point,
        copy_pct=100 * point.bytes_per_s / copy.per_s if copy and point.bytes_per_s is not None else None,
        matmul_pct=100 * point.flop_per_s / matmul.per_s if matmul and point.flop_per_s else None,
        # A phase without matrix products is nowhere near the ceiling of these, wherever the two meet.
        binds="copy" if copy and point.flops == 0 and point.num_bytes else roof.binds(point.intensity),
    )


def _left_out(num_estimates: int, num_bare: int) -> list[str]:
    reasons = []
    if num_estimates:
        reasons.append(f"{_cells(num_estimates)} left out: of an estimate nothing ran at any speed")
    if num_bare:
        reasons.append(f"{_cells(num_bare)} left out: neither a ledger nor hardware counters were kept")
    return reasons


def _cells(count: int) -> str:
    return f"{count} {'experiment is' if count == 1 else 'experiments are'}"

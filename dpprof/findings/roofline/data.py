"""The roofline of a comparison, as plain data: every phase of every cell against its machine's ceilings."""

from dataclasses import dataclass
from functools import cached_property

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.roofline.points import (
    COUNTERS,
    LEDGER,
    STEP,
    Given,
    Point,
    Roof,
    points,
    roof_key,
    roofs,
)


@dataclass(frozen=True)
class RooflineRow:
    """A point, the percentages of the ceilings that it reaches, and the ceiling that binds it."""

    point: Point
    copy_pct: float | None
    matmul_pct: float | None
    binds: str | None


@dataclass(frozen=True)
class Section:
    """One cell: its phases and the step, under one roof. Figures are medians of `num_runs` runs."""

    label: str
    trainer: str
    num_runs: int
    roof: Roof
    rows: list[RooflineRow]

    @property
    def title(self) -> str:
        """The label, and the number of runs if there are several."""
        return self.label if self.num_runs == 1 else f"{self.label} (medians of {self.num_runs} runs)"


@dataclass(frozen=True)
class Roofline:
    """All data of the page. `left_out` says which cells have no rows, and why."""

    name: str
    sections: list[Section]
    left_out: list[str]
    steps: str

    @cached_property
    def roofs(self) -> list[Roof]:
        """Distinct roofs of the sections, including those without a known ceiling."""
        return list({(s.roof.device, s.roof.precision): s.roof for s in self.sections}.values())

    @property
    def has_ceilings(self) -> bool:
        """True if any ceiling is known."""
        return any(roof.copy or roof.matmul for roof in self.roofs)

    @cached_property
    def sources(self) -> set[str]:
        """Sources of bytes and seconds over all rows."""
        return {row.point.source for section in self.sections for row in section.rows}


def compute(comparison: Comparison, given: Given) -> Roofline:
    """Return the roofline of all cells with a ledger or counters; estimates have none, as nothing ran."""
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


def _row(point: Point, roof: Roof) -> RooflineRow:
    copy, matmul = roof.copy, roof.matmul
    return RooflineRow(
        point,
        copy_pct=100 * point.bytes_per_s / copy.per_s if copy and point.bytes_per_s is not None else None,
        matmul_pct=100 * point.flop_per_s / matmul.per_s if matmul and point.flop_per_s else None,
        # Without matrix products a phase is limited by copies, wherever the two ceilings meet.
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


_NAMED = 3
_OF_LEDGER = (
    "These bytes are what operators ask for: caches may serve a part of them, and what reads more than it "
    "writes can be faster than a copy"
)
_OF_COUNTERS = "What mostly reads can be faster than a copy, and clocks change between runs"
_OF_MATMUL = (
    "The ceiling is too low, or FLOPs were counted that kernels skip, as causal attention is counted in full"
)


def doubts(roofline: Roofline) -> list[str]:
    """Return a sentence for each way in which points lie above the roof, naming the worst phases."""
    rows = [(section, row) for section in roofline.sections for row in section.rows]
    sources = ((LEDGER, _OF_LEDGER), (COUNTERS, _OF_COUNTERS))
    above = [
        ("copy", why, [(s, row, row.copy_pct) for s, row in rows if row.point.source == source])
        for source, why in sources
    ]
    above.append(("matmul", _OF_MATMUL, [(s, row, row.matmul_pct) for s, row in rows]))
    found = [_sentence(*one, is_named=len(roofline.sections) > 1) for one in above]
    return [sentence for sentence in found if sentence]


def _sentence(
    ceiling: str, why: str, reached: list[tuple[Section, RooflineRow, float | None]], *, is_named: bool
) -> str:
    """Name the phases above a ceiling, the highest first, and maybe their cells; empty without any."""
    above = sorted(
        ((pct, section, row) for section, row, pct in reached if pct is not None and pct > 100),
        key=lambda one: -one[0],
    )
    if not above:
        return ""
    names = []
    for pct, section, row in above[:_NAMED]:
        phase = "the whole step" if row.point.phase == STEP else row.point.phase
        names.append(f"{phase}{f' of {section.label}' if is_named else ''} ({pct:,.0f} %)")
    more = f"; and {len(above) - _NAMED} more" if len(above) > _NAMED else ""
    return f"Above the {ceiling} ceiling: {'; '.join(names)}{more}. {why}."

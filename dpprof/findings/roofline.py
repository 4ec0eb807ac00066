"""The roofline of a comparison: every phase of every cell against its machine's ceilings.

S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009.
"""

from dataclasses import dataclass
from functools import cached_property

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.tables import phase_order
from dpprof.record.figures import names
from dpprof.vocabulary.formats import counted
from dpprof.vocabulary.units import GIB, MIB, MS_PER_S

STEP = "step"
COUNTERS, LEDGER = "counters", "ledger"


@dataclass(frozen=True)
class Point:
    """One phase, or the whole step. `source` says where both bytes and seconds come from.

    COUNTERS: DRAM traffic and kernel time. LEDGER: bytes that operators ask for, and wall time of the clean
    pass. `flops` are the ledger's: matrix products, convolutions and attention (0: none, None: no ledger).
    """

    phase: str
    source: str
    num_bytes: float
    seconds: float | None
    flops: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None without FLOPs."""
        return self.flops / self.num_bytes if self.flops and self.num_bytes else None

    @property
    def flop_per_s(self) -> float | None:
        """FLOPs per second; None without FLOPs."""
        return self.flops / self.seconds if self.flops and self.seconds else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes read and written per second."""
        return self.num_bytes / self.seconds if self.seconds else None


def points(cell: Cell) -> list[Point]:
    """Return the phases in the order in which they run, then the step."""
    figures = cell.figures
    # Under Poisson sampling the ledger sees another batch than the clock.
    is_timed = names.MEAN_BATCH not in figures
    found = []
    for name in sorted(cell.phases, key=phase_order):
        phase = cell.phases[name]
        of_phase = phase.counters
        dram = (of_phase.dram_mib, of_phase.kernel_ms) if of_phase else (None, None)
        found.append(_point(name, phase.flops, dram, (phase.moved_mib, phase.ms if is_timed else None)))
    read, written = figures.get(names.DRAM_READ), figures.get(names.DRAM_WRITTEN)
    moved = None if read is None or written is None else read + written
    measured = moved, figures.get(names.KERNEL_MS)
    asked = figures.get(names.MOVED), figures.get(names.STEP) if is_timed else None
    found.append(_point(STEP, figures.get(names.FLOPS), measured, asked))
    return [point for point in found if point is not None]


def _point(
    name: str,
    flops: float | None,
    dram: tuple[float | None, float | None],
    asked: tuple[float | None, float | None],
) -> Point | None:
    """Return a point by MiB and ms of hardware counters, or else of the ledger; None without either."""
    source, (mib, ms) = (LEDGER, asked) if None in dram else (COUNTERS, dram)
    if mib is None:
        return None
    return Point(name, source, mib * MIB, None if ms is None else ms / MS_PER_S, flops)


_PER_S = {names.COPY: GIB, names.MATMUL: 10**12}


@dataclass(frozen=True)
class Ceiling:
    """Bytes or FLOPs per second: the highest of `num_runs` runs that measured it; of 0 runs the user's."""

    per_s: float
    lowest_per_s: float
    num_runs: int


@dataclass(frozen=True)
class Roof:
    """Ceilings of one device in one precision, as far as they are known."""

    device: str
    precision: str
    copy: Ceiling | None
    matmul: Ceiling | None

    @property
    def ridge(self) -> float | None:
        """FLOP per byte at which both ceilings meet: below it the copy binds, above it the arithmetic."""
        return self.matmul.per_s / self.copy.per_s if self.copy and self.matmul else None

    def binds(self, intensity: float | None) -> str | None:
        """Return the ceiling that binds at some FLOP per byte: `copy` or `matmul`; None if unknown."""
        if self.ridge is None or intensity is None:
            return None
        return "copy" if intensity < self.ridge else "matmul"


def roof_key(cell: Cell) -> tuple[str, str]:
    """Return device and precision, the weights' type with it: cells that share both share a roof."""
    device = cell.environment.get("gpu" if cell.config.device == "cuda" else "cpu")
    return device or cell.config.device, cell.precision


def roofs(
    cells: list[Cell], copy_bytes_per_s: float | None = None, matmul_flop_per_s: float | None = None
) -> dict[tuple[str, str], Roof]:
    """Return the roof of each device and precision; ceilings that are given replace measured ones."""
    found = {}
    for device, precision in dict.fromkeys(map(roof_key, cells)):
        of_device = [cell for cell in cells if roof_key(cell)[0] == device]
        of_both = [cell for cell in of_device if roof_key(cell)[1] == precision]
        # Copies are measured in one precision whatever the experiment's: their ceiling is the device's.
        found[device, precision] = Roof(
            device,
            precision,
            _ceiling(of_device, names.COPY, copy_bytes_per_s),
            _ceiling(of_both, names.MATMUL, matmul_flop_per_s),
        )
    return found


def _ceiling(cells: list[Cell], metric: str, given: float | None) -> Ceiling | None:
    if given is not None:
        return Ceiling(given, given, 0)
    measured = [
        run.figures[metric] * _PER_S[metric]
        for cell in cells
        for run in cell.representative
        if metric in run.figures
    ]
    return Ceiling(max(measured), min(measured), len(measured)) if measured else None


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


def compute(
    comparison: Comparison, copy_bytes_per_s: float | None = None, matmul_flop_per_s: float | None = None
) -> Roofline:
    """Return the roofline of all cells with a ledger or counters; estimates have none, as nothing ran."""
    measured = [cell for cell in comparison.cells if not cell.is_estimate]
    found = {id(cell): points(cell) for cell in measured}
    drawn = [cell for cell in measured if found[id(cell)]]
    under = roofs(measured, copy_bytes_per_s, matmul_flop_per_s)
    return Roofline(
        name=comparison.name,
        sections=[
            Section(
                label=f"{cell.trainer}, {comparison.model(cell).label}, {comparison.place_name(cell)}",
                trainer=cell.trainer,
                num_runs=len(cell.representative),
                roof=under[roof_key(cell)],
                rows=[_row(point, under[roof_key(cell)]) for point in found[id(cell)]],
            )
            for cell in drawn
        ],
        left_out=_left_out(len(comparison.cells) - len(measured), len(measured) - len(drawn)),
        steps=comparison.steps,
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
    reasons = {"of an estimate nothing ran at any speed": num_estimates}
    reasons["neither a ledger nor hardware counters were kept"] = num_bare
    of = "experiment is", "experiments are"
    return [f"{counted(count, *of)} left out: {why}" for why, count in reasons.items() if count]


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

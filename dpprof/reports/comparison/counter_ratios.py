"""Hardware counters side by side: bytes at each level of the memory, against standard training and against
what DP-SGD is commonly expected to cost there."""

from dataclasses import dataclass

from dpprof.reports.comparison.cells import Cell, Comparison
from dpprof.vocabulary.formats import fixed
from dpprof.vocabulary.trainers import trainer_info

# What is compared: the metric, its words, and the ratios to standard training that are commonly expected.
LEVELS = {
    "counters/dram_read_mib": ("DRAM read", 2.0, 5.0),
    "counters/dram_written_mib": ("DRAM written", 2.0, 5.0),
    "counters/l2_read_mib": ("L2 read", 1.5, 3.0),
    "counters/l2_written_mib": ("L2 written", 1.5, 3.0),
}
_EXPECTED = (
    "Commonly expected of DP-SGD: 2 to 5 times the DRAM traffic of standard training, 1.5 to 3 times its L2 "
    "traffic."
)
_KERNELS = "counters/kernel_ms"
_LISTED = 4


@dataclass(frozen=True)
class Level:
    """MiB that a step moves at one level, and how that compares. None: not counted, or nothing to compare
    with. `side` is `below` or `above` where the ratio is not among those expected."""

    mib: float | None
    ratio: float | None
    side: str | None


@dataclass(frozen=True)
class Counted:
    """One cell with hardware counters. `dram_to_ledger` is DRAM bytes over those that operators ask for."""

    cell: Cell
    model: str
    place: str
    kernel_ms: float
    levels: list[Level]
    dram_to_ledger: float | None

    @property
    def is_private(self) -> bool:
        """Whether it is one of those that the expectations are of."""
        return trainer_info(self.cell.trainer).is_private


def counted(comparison: Comparison) -> list[Counted]:
    """The finished cells that have counters, in order."""
    return [
        Counted(
            cell=cell,
            model=comparison.model(cell).label,
            place=comparison.place_name(cell),
            kernel_ms=cell.figures[_KERNELS],
            levels=[_level(comparison, cell, metric) for metric in LEVELS],
            dram_to_ledger=cell.figures.get("counters/dram_to_ledger_ratio"),
        )
        for cell in comparison.cells
        if cell.finished and _KERNELS in cell.figures
    ]


def _level(comparison: Comparison, cell: Cell, metric: str) -> Level:
    _, low, high = LEVELS[metric]
    ratio = comparison.ratio(cell, metric)
    side = None
    if ratio is not None and trainer_info(cell.trainer).is_private:
        side = "below" if ratio < low else "above" if ratio > high else None
    return Level(cell.figures.get(metric), ratio, side)


def judgement(rows: list[Counted]) -> list[str]:
    """What is commonly expected, and a sentence for each level and side on which the ratios are not so.

    Nothing where there is no ratio to judge.
    """
    if not any(level.ratio for row in rows if row.is_private for level in row.levels):
        return []
    return [_EXPECTED, *(_disagreements(rows) or ["What was counted agrees."])]


def _disagreements(rows: list[Counted]) -> list[str]:
    sentences = []
    for index, (name, low, high) in enumerate(LEVELS.values()):
        for side in ("below", "above"):
            found = [row for row in rows if row.levels[index].side == side]
            if found:
                listed = ", ".join(_shown(row, index) for row in found[:_LISTED])
                more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
                limit = low if side == "below" else high
                sentences.append(f"{name}: {side} {limit:g} times standard: {listed}{more}.")
    return sentences


def _shown(row: Counted, index: int) -> str:
    return f"{row.cell.trainer} at {row.model}, {row.place} ({fixed(row.levels[index].ratio, 2)})"

"""Hardware counters side by side: bytes at each level of the memory, against standard training and against
what DP-SGD is commonly expected to cost there."""

from dataclasses import dataclass

from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.vocabulary.formats import fixed
from dpprof.vocabulary.trainers import trainer_info


@dataclass(frozen=True)
class Expected:
    """Bytes at one level in one direction, and the ratios to standard training that are commonly expected."""

    name: str
    low: float
    high: float


# What is compared, by metric.
EXPECTED = {
    "counters/dram_read_mib": Expected("DRAM read", 2.0, 5.0),
    "counters/dram_written_mib": Expected("DRAM written", 2.0, 5.0),
    "counters/l2_read_mib": Expected("L2 read", 1.5, 3.0),
    "counters/l2_written_mib": Expected("L2 written", 1.5, 3.0),
}
_IN_WORDS = (
    "Commonly expected of DP-SGD: 2 to 5 times the DRAM traffic of standard training, 1.5 to 3 times its L2 "
    "traffic."
)
_KERNELS = "counters/kernel_ms"
_LISTED = 4


@dataclass(frozen=True)
class CountedBytes:
    """MiB that a step moves at one level, and how that compares. None: not counted, or nothing to compare
    with. `side` is `below` or `above` where the ratio is not among those expected."""

    mib: float | None
    ratio: float | None
    side: str | None


@dataclass(frozen=True)
class CounterRow:
    """One cell with hardware counters: what it moves, in the order of `EXPECTED`.

    `dram_to_ledger` is DRAM bytes over those that operators ask for.
    """

    trainer: str
    model: str
    place: str
    kernel_ms: float
    moved: list[CountedBytes]
    dram_to_ledger: float | None

    @property
    def is_private(self) -> bool:
        """Whether it is one of those that are compared with standard training."""
        return trainer_info(self.trainer).is_private


def counter_rows(comparison: Comparison) -> list[CounterRow]:
    """The finished cells that have counters, in order."""
    return [
        CounterRow(
            trainer=cell.trainer,
            model=comparison.model(cell).label,
            place=comparison.place_name(cell),
            kernel_ms=cell.figures[_KERNELS],
            moved=[_moved(comparison, cell, metric) for metric in EXPECTED],
            dram_to_ledger=cell.figures.get("counters/dram_to_ledger_ratio"),
        )
        for cell in comparison.cells
        if cell.finished and _KERNELS in cell.figures
    ]


def _moved(comparison: Comparison, cell: Cell, metric: str) -> CountedBytes:
    expected = EXPECTED[metric]
    ratio = comparison.ratio(cell, metric)
    side = None
    if ratio is not None and trainer_info(cell.trainer).is_private:
        side = "below" if ratio < expected.low else "above" if ratio > expected.high else None
    return CountedBytes(cell.figures.get(metric), ratio, side)


def judgement(rows: list[CounterRow]) -> list[str]:
    """What is commonly expected, and a sentence for each level and side on which the ratios are not so.

    Nothing where there is no ratio to judge.
    """
    if not any(moved.ratio for row in rows if row.is_private for moved in row.moved):
        return []
    return [_IN_WORDS, *(_disagreements(rows) or ["What was counted agrees."])]


def _disagreements(rows: list[CounterRow]) -> list[str]:
    sentences = []
    for index, expected in enumerate(EXPECTED.values()):
        for side, limit in (("below", expected.low), ("above", expected.high)):
            found = [row for row in rows if row.moved[index].side == side]
            if found:
                listed = ", ".join(_shown(row, index) for row in found[:_LISTED])
                more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
                sentences.append(f"{expected.name}: {side} {limit:g} times standard: {listed}{more}.")
    return sentences


def _shown(row: CounterRow, index: int) -> str:
    return f"{row.trainer} at {row.model}, {row.place} ({fixed(row.moved[index].ratio, 2)})"

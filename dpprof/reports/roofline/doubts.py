"""Points above the roof: what cannot be so if every figure means what it seems to, and how it comes about."""

from collections.abc import Callable, Iterator

from dpprof.reports.roofline.data import Roofline, Row
from dpprof.reports.roofline.points import COUNTERS, LEDGER, STEP

_NAMED = 3


def doubts(roofline: Roofline) -> list[str]:
    """A sentence for each way in which points lie above the roof, naming the phases that are furthest out."""
    found = [
        _sentence(
            _above(roofline, lambda row: row.copy_pct if row.point.source == LEDGER else None),
            "copy",
            "These bytes are what operators ask for: caches may serve a part of them, and what reads more "
            "than it writes can be faster than a copy",
        ),
        _sentence(
            _above(roofline, lambda row: row.copy_pct if row.point.source == COUNTERS else None),
            "copy",
            "What mostly reads can be faster than a copy, and clocks change between runs",
        ),
        _sentence(
            _above(roofline, lambda row: row.matmul_pct),
            "matmul",
            "The ceiling is too low, or FLOPs were counted that kernels skip, "
            "as causal attention is counted in full",
        ),
    ]
    return [sentence for sentence in found if sentence]


def _above(roofline: Roofline, percent: Callable[[Row], float | None]) -> list[tuple[float, str]]:
    """Percentages over 100 with the names of their phases, the highest first."""
    return sorted(_over(roofline, percent), key=lambda item: -item[0])


def _over(roofline: Roofline, percent: Callable[[Row], float | None]) -> Iterator[tuple[float, str]]:
    for section in roofline.sections:
        for row in section.rows:
            reached = percent(row)
            if reached is not None and reached > 100:
                phase = "the whole step" if row.point.phase == STEP else row.point.phase
                of = f" of {section.label}" if len(roofline.sections) > 1 else ""
                yield reached, f"{phase}{of} ({reached:,.0f} %)"


def _sentence(above: list[tuple[float, str]], ceiling: str, why: str) -> str | None:
    if not above:
        return None
    names = "; ".join(name for _, name in above[:_NAMED])
    more = f"; and {len(above) - _NAMED} more" if len(above) > _NAMED else ""
    return f"Above the {ceiling} ceiling: {names}{more}. {why}."

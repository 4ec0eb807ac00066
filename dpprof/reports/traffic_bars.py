"""The bytes that each phase reads and writes, by operator class, as stacked bars."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpprof.record.ledger import LedgerResult
from dpprof.reports.colors import CLASS_COLORS, class_color
from dpprof.reports.tables import BETWEEN
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class Part:
    """What the operators of a class read and write in a phase; `pct` of the longest bar."""

    operator_class: str
    color: str
    read_mib: float
    written_mib: float
    pct: float


@dataclass(frozen=True)
class TrafficBar:
    """A phase's bar."""

    phase: str
    moved_mib: float
    parts: list[Part]


def compute(ledger: LedgerResult, phases: Iterable[str]) -> list[TrafficBar]:
    """The bars of some phases, in their order."""
    found = ledger.moved(by=lambda row: (row.phase or BETWEEN, row.operator_class))
    by_phase = ledger.moved(by=lambda row: row.phase or BETWEEN)
    longest = max((moved.num_bytes for moved in by_phase.values()), default=0) or 1
    return [
        TrafficBar(
            phase=phase,
            moved_mib=mib(by_phase[phase].num_bytes) if phase in by_phase else 0.0,
            parts=[
                Part(
                    operator_class=name,
                    color=class_color(name),
                    read_mib=mib(found[phase, name].read),
                    written_mib=mib(found[phase, name].written),
                    pct=100 * found[phase, name].num_bytes / longest,
                )
                for name in listed_first((c for p, c in found if p == phase), CLASS_COLORS)
            ],
        )
        for phase in phases
    ]


def legend(bars: list[TrafficBar]) -> dict[str, str]:
    """The classes that some bars have, with their colours."""
    names = listed_first((part.operator_class for bar in bars for part in bar.parts), CLASS_COLORS)
    return {name: class_color(name) for name in names}

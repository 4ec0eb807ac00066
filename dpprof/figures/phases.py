"""What a record says of each phase of the step."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.figures.counters import CounterFigures
from dpprof.record.ledger import Moved
from dpprof.record.record import Record
from dpprof.vocabulary.units import mib, ms


@dataclass(frozen=True)
class PhaseFigures:
    """One phase. What was not measured is None.

    `ms` is the median of the timed steps. The ledger tells its peak, the bytes that its operators read and
    write, and their FLOPs; the allocator tells `allocator_peak_mib`, and the hardware `counters`.
    """

    ms: float | None = None
    peak_mib: float | None = None
    allocator_peak_mib: float | None = None
    read_mib: float | None = None
    written_mib: float | None = None
    flops: float | None = None
    counters: CounterFigures | None = None

    @property
    def moved_mib(self) -> float | None:
        """Read and written together."""
        return None if self.read_mib is None or self.written_mib is None else self.read_mib + self.written_mib


def phase_figures(record: Record, counters: Mapping[str | None, CounterFigures]) -> dict[str, PhaseFigures]:
    """Each phase that anything is known of: those timed first, then those of the ledger and the counters."""
    ledger = record.ledger
    peaks = ledger.phase_peak if ledger else {}
    moved = ledger.moved(by=lambda row: row.phase) if ledger else {}
    names = dict.fromkeys([*record.phase_s, *peaks, *(phase for phase in counters if phase is not None)])
    found = {}
    for phase in names:
        seconds, allocator = record.phase_s.get(phase), record.memory.phase_peak.get(phase)
        bytes_moved = moved.get(phase, Moved()) if phase in peaks else None
        found[phase] = PhaseFigures(
            ms=ms(statistics.median(seconds)) if seconds else None,
            peak_mib=mib(peaks[phase].num_bytes) if phase in peaks else None,
            allocator_peak_mib=None if allocator is None else mib(allocator),
            read_mib=None if bytes_moved is None else mib(bytes_moved.read),
            written_mib=None if bytes_moved is None else mib(bytes_moved.written),
            flops=None if bytes_moved is None else bytes_moved.flops,
            counters=counters.get(phase),
        )
    return found

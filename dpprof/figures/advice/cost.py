"""What a logical step costs, from estimates of one or two numbers of physical batches."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import communication_s, doubt_bytes, floor_s, needed_bytes
from dpprof.figures.results import Result
from dpprof.record.ledger import CollectiveRow, LedgerResult, Moved, TrafficRow

# Up to so many physical batches, a logical one is estimated as it is. Of more of them these two are, and each
# further one costs what the second has more than the first.
MOST_ESTIMATED = 4
_TWO = (2, 3)


def batches_to_estimate(accumulation_steps: int) -> tuple[int, ...]:
    """How many physical batches the estimates have that tell the cost of a logical one."""
    return (accumulation_steps,) if accumulation_steps <= MOST_ESTIMATED else _TWO


@dataclass(frozen=True)
class Cost:
    """Of a logical step: the bytes that a device needs, doubts included, and in which phase; FLOPs, bytes
    moved, and the least time on the named device, None without one. `folders` are those of the estimates.
    """

    needed: int
    peak_phase: str | None
    flops: int
    moved: int
    least_s: float | None
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, config: ExperimentConfig, estimates: Sequence[Result]) -> Self | None:
        """From the estimates that `batches_to_estimate` asks for, in its order; None if what is in doubt has
        no bound.
        """
        ledgers = [result.record.ledger for result in estimates if result.record is not None]
        last = ledgers[-1]
        assert last is not None, "it finished"
        in_doubt = doubt_bytes(last)
        if in_doubt is None:
            return None
        first = ledgers[0]
        assert first is not None, "it finished"
        whole = last if len(ledgers) == 1 else extended(first, last, config.accumulation_steps - _TWO[0])
        floors = floor_s(config, whole)
        return cls(
            needed=needed_bytes(config, last) + in_doubt,
            peak_phase=last.peak_phase,
            flops=whole.moved_in_step.flops,
            moved=whole.moved_in_step.num_bytes,
            least_s=max(sum(floors.values()), communication_s(config, whole) or 0.0) if floors else None,
            folders=tuple(result.folder.path for result in estimates),
        )

    @property
    def effort(self) -> tuple[float, float]:
        """What stands for the time in comparisons: the least time; without it FLOPs, then bytes moved."""
        return (self.least_s, 0.0) if self.least_s is not None else (float(self.flops), float(self.moved))


def extended(less: LedgerResult, more: LedgerResult, times: int) -> LedgerResult:
    """A ledger with `times` as many physical batches added to `less` as `more` has more than it, as far as
    traffic goes.
    """
    before, after = (ledger.moved(by=lambda row: row.phase) for ledger in (less, more))
    traffic = [
        TrafficRow(phase or "", "", phase, 0, *_added(before.get(phase, Moved()), found, times))
        for phase, found in after.items()
    ]
    sent, more_sent = _sent(less), _sent(more)
    collectives = [
        CollectiveRow("", phase, sent=_grown(sent.get(phase, 0), num_bytes, times))
        for phase, num_bytes in more_sent.items()
    ]
    return dataclasses.replace(more, traffic=traffic, collectives=collectives)


def _added(before: Moved, after: Moved, times: int) -> tuple[int, int, int]:
    return (
        _grown(before.read, after.read, times),
        _grown(before.written, after.written, times),
        _grown(before.flops, after.flops, times),
    )


def _grown(before: int, after: int, times: int) -> int:
    return before + times * (after - before)


def _sent(ledger: LedgerResult) -> Mapping[str | None, int]:
    found: dict[str | None, int] = {}
    for row in ledger.collectives:
        found[row.phase] = found.get(row.phase, 0) + row.sent
    return found

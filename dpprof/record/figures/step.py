"""Bytes, FLOPs and time of one logical step, phase by phase, and what bounds the time."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.capacity import device_of, doubt_bytes, needed_bytes
from dpprof.record.ledger import CollectiveRow, LedgerResult, Moved, PhaseTime
from dpprof.vocabulary.trainers import trainer_info

# Bases of a time, the best first.
BASES = MEASURED, PREDICTED, UNKNOWN = "measured", "predicted", "unknown"
# What is counted outside of a step's phases, and has no time of its own.
_OUTSIDE = "outside of phases"
# Savings below this share of a cost do not count.
SMALL = 0.001
# A step is launch-bound if its GPU waits for the host for a larger share of it.
_MOSTLY = 0.5
# Factor by which a target's host may be slower or faster, as 0.3 assumed.
_HOST_DOUBT = 2.0


class TimeRange(NamedTuple):
    """Seconds, and the least and the most that they may be."""

    seconds: float
    least: float
    most: float

    def times(self, factor: float) -> "TimeRange":
        """Return the range times a factor."""
        return TimeRange(*(factor * each for each in self))


class Amounts(NamedTuple):
    """Amounts that a phase, or a whole step, takes of a device.

    `flops` and the bytes `moved` and `sent` are counted. `seconds` are predicted or measured, at least
    `least` and at most `most`. In these a GPU runs operators for `device_s`, for `arithmetic_s` of which
    computing takes longer than moving, and waits for `waiting_s`; its host works for `host_s`, and issues
    `operators`.
    """

    flops: float = 0.0
    moved: float = 0.0
    sent: float = 0.0
    seconds: float = 0.0
    least: float = 0.0
    most: float = 0.0
    device_s: float = 0.0
    arithmetic_s: float = 0.0
    waiting_s: float = 0.0
    host_s: float = 0.0
    operators: float = 0.0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum of both."""
        return Amounts(*map(sum, zip(self, other, strict=True)))

    def times(self, factor: float) -> "Amounts":
        """Return the amounts times a factor."""
        return Amounts(*(factor * each for each in self))


class Bound(NamedTuple):
    """Shares of a GPU's predicted step by what bounds it, and the operators that the step issues.

    The GPU moves data, computes, or waits for the host to issue operators.
    """

    memory: float
    arithmetic: float
    host: float
    operators: int

    @property
    def is_launch_bound(self) -> bool:
        """True if the GPU waits more than half of the step for the host."""
        return self.host > _MOSTLY

    @property
    def words(self) -> str:
        """Say that the step is launch-bound; empty if it is not."""
        waits = f"{100 * self.host:.0f} % of it for the host to issue {self.operators:,} operators"
        return f"is launch-bound: the GPU waits {waits}" if self.is_launch_bound else ""


@dataclass(frozen=True)
class LogicalStep:
    """Amounts that a logical step takes, by phase, and the bytes that it needs, those in doubt included.

    `peak_phase` is where the peak lies. `link` is the rate of sending in GB/s if that comes on top of
    `phases`, whose times were measured on a single rank. `folders` are those of the estimates.
    """

    phases: Mapping[str, Amounts]
    basis: str = PREDICTED
    needed: int = 0
    peak_phase: str | None = None
    link: float = 0.0
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, config: ExperimentConfig, ledger: LedgerResult) -> "LogicalStep":
        """Return the step of an estimate."""
        times, moved = _seconds(config, ledger), ledger.moved(by=lambda row: row.phase or _OUTSIDE)
        found = {}
        for name in dict.fromkeys((*ledger.phase_peak, *moved)):
            one, alone = moved.get(name, Moved()), ledger.phase_s.get(name, PhaseTime())
            device_s = one.predicted_s if name in times else 0.0
            found[name] = Amounts(
                flops=one.flops,
                moved=one.num_bytes,
                sent=sum(row.sent for row in ledger.collectives if row.phase == name),
                **times.get(name, TimeRange(0.0, 0.0, 0.0))._asdict(),
                device_s=device_s,
                arithmetic_s=one.arithmetic_s if name in times else 0.0,
                waiting_s=alone.seconds - device_s,
                host_s=alone.host_s,
                operators=alone.operators,
            )
        needed = needed_bytes(config, ledger) + (doubt_bytes(ledger) or 0)
        return cls(found, needed=needed, peak_phase=ledger.peak_phase)

    @cached_property
    def total(self) -> Amounts:
        """Amounts of all phases together."""
        return Amounts(*map(sum, zip(*self.phases.values(), strict=True))) if self.phases else Amounts()

    @property
    def time(self) -> TimeRange | None:
        """Seconds of the step; None if they are not known.

        Steps measured on one rank do not show what communication adds: at least nothing, where computation
        hides it, and at most all of its time.
        """
        total = self.total
        if not total.seconds:
            return None
        if not self.link:
            return TimeRange(total.seconds, total.least, total.most)
        sending = total.sent / (self.link * 1e9)
        least, most = max(total.least, sending), total.most + sending
        return TimeRange((least + most) / 2, least, most)

    @property
    def seconds(self) -> float | None:
        """Predicted or measured seconds; None if they are not known."""
        return self.time and self.time.seconds

    @property
    def flops(self) -> int:
        """FLOPs of the step."""
        return round(self.total.flops)

    @property
    def moved(self) -> int:
        """Bytes that the step moves."""
        return round(self.total.moved)

    @property
    def effort(self) -> tuple[float, float]:
        """Sort key for time: the seconds, or without them FLOPs, then bytes moved."""
        return (self.seconds, 0.0) if self.seconds is not None else (float(self.flops), float(self.moved))

    def saves(self, other: "LogicalStep") -> bool:
        """Return True if it needs clearly less memory than another."""
        return self.needed < other.needed * (1 - SMALL)

    def fits(self, limit: int | None) -> bool:
        """Return True if it is within the limit, or without a limit."""
        return limit is None or self.needed <= limit

    @property
    def time_basis(self) -> str:
        """Basis of the time."""
        return self.basis if self.time is not None else UNKNOWN

    @property
    def by_phase(self) -> dict[str, TimeRange]:
        """Predicted time of each phase; empty where nothing is predicted."""
        timed = {name: one for name, one in self.phases.items() if name != _OUTSIDE}
        if not any(one.most for one in timed.values()):
            return {}
        return {name: TimeRange(one.seconds, one.least, one.most) for name, one in timed.items()}

    @property
    def bound(self) -> Bound | None:
        """Shares of a step on a GPU, which ranks' sending may lengthen; None if they are not predicted."""
        total, step = self.total, self.time
        is_predicted = self.basis == PREDICTED and total.operators and total.device_s + total.waiting_s > 0
        if step is None or not is_predicted:
            return None
        moving, waiting = total.device_s - total.arithmetic_s, max(0.0, total.waiting_s)
        memory, arithmetic, host = (each / step.seconds for each in (moving, total.arithmetic_s, waiting))
        return Bound(memory, arithmetic, host, round(total.operators))


def link_of(config: ExperimentConfig) -> float:
    """Return the link's GB/s, as given or that of the target device; 0 if not known."""
    device = device_of(config)
    return config.estimating.link_gb_per_s or (device.link_gb_per_s if device else 0.0)


def sending_s(config: ExperimentConfig, row: CollectiveRow) -> float | None:
    """Return the seconds of collectives: as measured ones took, or by the link's rate if that is given.

    None if neither is known.
    """
    if row.predicted_s is not None and not config.estimating.link_gb_per_s:
        return row.predicted_s
    rate = link_of(config)
    return row.sent / (rate * 1e9) if rate else None


def _seconds(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, TimeRange]:
    """Return the predicted time of each phase on the target; empty where nothing is predicted.

    What ranks send in forward and backward overlaps with these on GPUs, but for the last one; else it comes
    on top.
    """
    alone = {phase: _range(time) for phase, time in ledger.phase_s.items()} or _of_rows(ledger)
    overlapping = trainer_info(config.trainer).overlapping
    found = {}
    for phase in ledger.phase_peak if alone else ():
        times = alone.get(phase, TimeRange(0.0, 0.0, 0.0))
        taken = [
            (sending_s(config, row) or 0.0, row.calls) for row in ledger.collectives if row.phase == phase
        ]
        sent = sum(seconds for seconds, _ in taken)
        last = max((seconds / max(1, calls) for seconds, calls in taken), default=0.0)
        if config.device == "cuda" and phase in overlapping:
            found[phase] = TimeRange(*(max(each, sent - last) + last for each in times))
        else:
            found[phase] = TimeRange(*(each + sent for each in times))
    return found


def _range(time: PhaseTime) -> TimeRange:
    """Return a phase's time with its range. In a slower step a phase may wait less: all three count."""
    found = time.seconds, time.least_s, time.most_s
    return TimeRange(time.seconds, min(found), max(found))


def _of_rows(ledger: LedgerResult) -> dict[str, TimeRange]:
    """Return the times of a ledger of 0.3: those of the operators, or until the host has issued them."""
    moved = ledger.moved(by=lambda row: row.phase)
    if not any(one.predicted_s for one in moved.values()):
        return {}
    found = {}
    issued, ended = [0.0] * 3, [0.0] * 3
    for phase in ledger.phase_peak:
        one = moved.get(phase, Moved())
        before, on_device = ended, (one.least_s, one.predicted_s, one.most_s)
        hosts = (one.host_s / _HOST_DOUBT, one.host_s, one.host_s * _HOST_DOUBT)
        issued = [sum(pair) for pair in zip(issued, hosts, strict=True)]
        ended = [max(b + t, i) for b, t, i in zip(before, on_device, issued, strict=True)]
        least, middle, most = (end - start for start, end in zip(before, ended, strict=True))
        found[phase] = TimeRange(middle, min(least, middle), max(most, middle))
    return found

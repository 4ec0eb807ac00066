"""Figures of one estimate: the memory that its step needs on the device, and the predicted time there."""

from dataclasses import dataclass
from typing import Self

from dpprof.config.flat import from_flat
from dpprof.record.figures.capacity import added_bytes, capacity_bytes, doubt_bytes, fits, needed_bytes
from dpprof.record.figures.step import LogicalStep, TimeRange, sending_s
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.formats import fixed, size
from dpprof.vocabulary.units import mib, ms


@dataclass(frozen=True)
class EstimateFigures:
    """Memory that the step needs on the device, and its predicted time there.

    `added_mib` is the overhead beside the tensors, by name. `doubts_mib` bounds each thing that the estimate
    cannot follow, without those that have no bound; `doubt_mib` is their sum. `growth_mib` is what each step
    leaves alive, if anything. `fits` is None if doubts decide or no memory is given. `step` has what the step
    takes by phase; its times are empty where nothing is predicted. `sending_s` is how long ranks send, None
    for a single rank or if the time of a collective is not known.
    """

    added_mib: dict[str, float]
    doubts_mib: dict[str, float]
    doubt_mib: float | None
    growth_mib: float | None
    needed_mib: float
    capacity_mib: float | None
    fits: bool | None
    step: LogicalStep
    sending_s: float | None

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self:
        """Return the figures of an estimate's record."""
        config = from_flat(record.config)
        in_doubt, limit = doubt_bytes(ledger), capacity_bytes(config)
        sending = [sending_s(config, row) for row in ledger.collectives]
        known = [seconds for seconds in sending if seconds is not None]
        return cls(
            added_mib={name: mib(num_bytes) for name, num_bytes in added_bytes(config, ledger).items()},
            doubts_mib={d.name: mib(d.num_bytes) for d in ledger.doubts if d.num_bytes is not None},
            doubt_mib=mib(in_doubt) if ledger.doubts and in_doubt is not None else None,
            growth_mib=mib(ledger.growth) if ledger.growth > 0 else None,
            needed_mib=mib(needed_bytes(config, ledger)),
            capacity_mib=None if limit is None else mib(limit),
            fits=fits(config, ledger),
            step=LogicalStep.of(config, ledger),
            sending_s=sum(known) if known and len(known) == len(sending) else None,
        )


def time_range(predicted: TimeRange) -> str:
    """Format a predicted time with its range."""
    middle, least, most = (fixed(ms(seconds), 1 if predicted.least > 0.1 else 2) for seconds in predicted)
    return f"{middle} ms ({least} to {most})"


def fit_sentence(
    is_held: bool, fits: bool | None, growth_mib: float | None, doubt_mib: float | None, device: str = ""
) -> str:
    """Say whether an estimate fits a device, or why that is open; empty if no device is given."""
    if not is_held:
        return ""
    if fits is not None:
        return f"{'fits' if fits else 'does not fit'} {device}".rstrip()
    if growth_mib is not None:
        why = f"every step leaves {size(growth_mib)} more alive"
    elif doubt_mib is not None:
        why = f"up to {size(doubt_mib)} more are in doubt"
    else:
        why = "nothing bounds what is in doubt"
    return f"may or may not fit {device}".rstrip() + f", as {why}"

"""The figures by which an estimate is compared with a device."""

from dataclasses import dataclass
from typing import Self

from dpprof.config.flat import from_flat
from dpprof.figures import capacity
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class EstimateFigures:
    """What the step needs of the device, and how long it takes there at least.

    `added_mib` is what lies beside the tensors, by name. `doubts_mib` is how much each thing that an estimate
    cannot follow may add, `doubt_mib` all of them together; what nothing bounds is not there. `growth_mib` is
    what each step leaves alive, if anything. `fits` is None if doubts decide, or no memory is given.
    `floor_s` goes by phase, and is empty without a named device; `communication_s` is the least time that
    ranks take for what they send, None without a link whose rate is known.
    """

    added_mib: dict[str, float]
    doubts_mib: dict[str, float]
    doubt_mib: float | None
    growth_mib: float | None
    needed_mib: float
    capacity_mib: float | None
    fits: bool | None
    floor_s: dict[str, float]
    communication_s: float | None

    @property
    def step_floor_s(self) -> float | None:
        """The least time of the step, whose communication may go on beside everything else."""
        known = [seconds for seconds in (sum(self.floor_s.values()), self.communication_s) if seconds]
        return max(known, default=None)

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self:
        """The figures of a record that an estimate left."""
        config = from_flat(record.config)
        added = capacity.from_allocator(config, ledger) | capacity.beyond_allocator(config)
        in_doubt, limit = capacity.doubt_bytes(ledger), capacity.capacity_bytes(config)
        return cls(
            added_mib={name: mib(num_bytes) for name, num_bytes in added.items()},
            doubts_mib={d.name: mib(d.num_bytes) for d in ledger.doubts if d.num_bytes is not None},
            doubt_mib=mib(in_doubt) if ledger.doubts and in_doubt is not None else None,
            growth_mib=mib(ledger.growth) if ledger.growth > 0 else None,
            needed_mib=mib(capacity.needed_bytes(config, ledger)),
            capacity_mib=None if limit is None else mib(limit),
            fits=capacity.fits(config, ledger),
            floor_s=capacity.floor_s(config, ledger),
            communication_s=capacity.communication_s(config, ledger),
        )


def held_against(
    is_held: bool, fits: bool | None, growth_mib: float | None, doubt_mib: float | None, device: str = ""
) -> str:
    """Whether an estimate with these figures fits a device, or why that cannot be told; empty if it is held
    against none.
    """
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

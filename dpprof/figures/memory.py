"""Memory as the allocator and the operating system tell it, in MiB."""

from dataclasses import dataclass, field
from typing import Self

from dpprof.record.record import Memory
from dpprof.vocabulary.units import mib


@dataclass(frozen=True)
class MemoryFigures:
    """The fields of `record.Memory` that are one figure of a run. What was not measured is None.

    `saving_mib` is how much lower the peak is with each saving, `held_mib` what the trainer holds, both by
    name.
    """

    peak_allocated_mib: float | None = None
    peak_reserved_mib: float | None = None
    first_step_peak_mib: float | None = None
    after_step_mib: float | None = None
    after_cleanup_mib: float | None = None
    device_used_mib: float | None = None
    peak_rss_mib: float | None = None
    saving_mib: dict[str, float] = field(default_factory=dict)
    held_mib: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, memory: Memory, held: dict[str, int] | None = None) -> Self:
        """The figures of a record's memory, or of what a failure left."""
        return cls(
            peak_allocated_mib=_known_mib(memory.peak_allocated),
            peak_reserved_mib=_known_mib(memory.peak_reserved),
            first_step_peak_mib=_known_mib(memory.first_step_peak),
            after_step_mib=_known_mib(memory.after_step),
            after_cleanup_mib=_known_mib(memory.after_cleanup),
            device_used_mib=_known_mib(memory.device_used),
            peak_rss_mib=_known_mib(memory.peak_rss),
            saving_mib={name: mib(num_bytes) for name, num_bytes in memory.saved.items()},
            held_mib={category: mib(num_bytes) for category, num_bytes in (held or {}).items()},
        )


def _known_mib(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else mib(num_bytes)

"""What the roofline is made of: the work, the bytes and the time of each phase of a training step.

The roofline: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.figures.metrics import MIB
from dpprof.reports.tables import phase_order

STEP = "step"
COUNTERS, LEDGER = "counters", "ledger"
_CLASSES = "counters/class/"


@dataclass(frozen=True)
class Point:
    """One phase, or the whole step. `source` says where bytes and seconds come from, always both from one.

    COUNTERS: DRAM traffic and kernel time, from hardware counters. LEDGER: bytes that operators ask for, and
    wall time of the clean pass. `flops` come from the ledger in both cases: those of matrix products,
    convolutions and attention; 0 where a phase has none of these, None without a ledger.
    """

    phase: str
    source: str
    num_bytes: float
    seconds: float | None
    flops: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None where there are no FLOPs to speak of."""
        return self.flops / self.num_bytes if self.flops and self.num_bytes else None

    @property
    def flop_per_s(self) -> float | None:
        """FLOPs reached per second; None where there are none."""
        return self.flops / self.seconds if self.flops and self.seconds else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes read and written per second."""
        return self.num_bytes / self.seconds if self.seconds else None


def points(figures: dict[str, float]) -> list[Point]:
    """The phases in the order in which they run, then the step, from figures by metric name."""
    names = dict.fromkeys(
        name.split("/")[1]
        for name in figures
        if name.count("/") == 2 and name.startswith(("io/", "counters/")) and not name.startswith(_CLASSES)
    )
    return list(_known(figures, [*sorted(names, key=phase_order), STEP]))


def _known(figures: dict[str, float], phases: list[str]) -> Iterator[Point]:
    for phase in phases:
        flops = figures.get("flops/total" if phase == STEP else f"flops/{phase}")
        counted = _counted(figures, "counters" if phase == STEP else f"counters/{phase}")
        booked = _booked(figures, phase)
        if counted is not None:
            yield Point(phase, COUNTERS, *counted, flops)
        elif booked is not None:
            yield Point(phase, LEDGER, *booked, flops)


def _counted(figures: dict[str, float], prefix: str) -> tuple[float, float] | None:
    """DRAM bytes and seconds of kernels, where all of these were counted."""
    names = [f"{prefix}/{name}" for name in ("dram_read_mib", "dram_written_mib", "kernel_ms")]
    if any(name not in figures for name in names):
        return None
    read, written, ms = (figures[name] for name in names)
    return (read + written) * MIB, ms / 1e3


def _booked(figures: dict[str, float], phase: str) -> tuple[float, float | None] | None:
    """The ledger's bytes, and wall time where it was measured."""
    if phase == STEP:
        mib, ms = figures.get("io/total_mib"), figures.get("latency/step_ms_median")
    else:
        mib, ms = _moved_mib(figures, phase), figures.get(f"latency/{phase}_ms")
    if mib is None:
        return None
    if "step/mean_batch" in figures:  # Poisson sampled: the bytes are of another batch than the time
        ms = None
    return mib * MIB, None if ms is None else ms / 1e3


def _moved_mib(figures: dict[str, float], phase: str) -> float | None:
    if f"io/{phase}/read_mib" not in figures:
        return None
    return figures[f"io/{phase}/read_mib"] + figures[f"io/{phase}/written_mib"]

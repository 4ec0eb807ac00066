"""What a step costs at any batch size, from a few that were estimated.

Bytes moved, FLOPs and bytes sent are affine in the batch, phase by phase: two sizes give them for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dpprof.config.devices import Device
from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.results import Result
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.vocabulary.trainers import trainer_info


@dataclass(frozen=True)
class Affine:
    """A quantity that is `constant` + `slope` times the batch."""

    constant: float = 0.0
    slope: float = 0.0

    def __call__(self, batch: float) -> float:
        """Its value at a batch size."""
        return self.constant + self.slope * batch

    @classmethod
    def through(cls, points: Sequence[tuple[int, float]]) -> "Affine":
        """The line through the first and the last of some points, by batch; flat through one."""
        (first, low), (last, high) = points[0], points[-1]
        slope = (high - low) / (last - first) if last != first else 0.0
        return cls(low - slope * first, slope)


@dataclass(frozen=True)
class PhaseCost:
    """One occurrence of a phase: bytes that it reads and writes, FLOPs, and bytes that a rank sends."""

    moved: Affine
    flops: Affine
    sent: Affine


@dataclass(frozen=True)
class StepCost:
    """What each phase of a trainer's step costs, by the samples of a physical batch on one device."""

    phases: dict[str, PhaseCost]

    @classmethod
    def of(cls, estimates: Sequence[Result]) -> "StepCost":
        """From estimates of one trainer at several batch sizes, alike in all else."""
        known = [(e.config, e.record.ledger) for e in estimates if e.record and e.record.ledger]
        by_batch = sorted(known, key=lambda one: one[0].batch_size)
        names = dict.fromkeys(name for _, ledger in by_batch for name in ledger.phase_peak)
        return cls({name: _phase(name, by_batch) for name in names})

    def floor_s(self, device: Device, precision: str, batch: float) -> dict[str, float]:
        """The least time of one occurrence of each phase: as `capacity.floor_s` has it."""
        rate = device.tflops(precision)
        return {
            name: max(
                cost.moved(batch) / (device.bandwidth_gb_per_s * 1e9),
                cost.flops(batch) / (rate * 1e12) if rate else 0.0,
            )
            for name, cost in self.phases.items()
        }

    def sending_s(self, gb_per_s: float, batch: float) -> dict[str, float]:
        """The least time of one occurrence of each phase to send what it does."""
        return {name: cost.sent(batch) / (gb_per_s * 1e9) for name, cost in self.phases.items()}

    def growth(self, name: str, batch: float, measured_at: float) -> float:
        """How many times longer a phase should take with a batch than with the one where it was measured: by
        its FLOPs, or if it has none by the bytes that it moves.
        """
        cost = self.phases.get(name)
        if cost is None:
            return 1.0
        grows = cost.flops if cost.flops(measured_at) > 0 else cost.moved
        return grows(batch) / grows(measured_at) if grows(measured_at) > 0 else 1.0


def _phase(name: str, by_batch: list[tuple[ExperimentConfig, LedgerResult]]) -> PhaseCost:
    moved, flops, sent = [], [], []
    for config, ledger in by_batch:
        batch = config.batch_size
        times = config.accumulation_steps if name in trainer_info(config.trainer).each_batch else 1
        of_phase = ledger.moved(by=lambda row: row.phase).get(name, Moved())
        moved.append((batch, of_phase.num_bytes / times))
        flops.append((batch, of_phase.flops / times))
        sent.append((batch, sum(row.sent for row in ledger.collectives if row.phase == name) / times))
    return PhaseCost(Affine.through(moved), Affine.through(flops), Affine.through(sent))

"""Ledgers of estimates and what their steps take, small enough to be checked by hand."""

from example_config import experiment

from dpprof.config.devices import BLOCK_BYTES
from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.cost import Affine, Lines, PhaseCost, StepCost
from dpprof.record.figures.step import Amounts, LogicalStep
from dpprof.record.ledger import LedgerResult, PhasePeak, TrafficRow

MIB = 2**20
ON_H100 = experiment(passes="estimate", target="H100", batch_size=3, seq_len=130, hidden_dim=64)
ON_CPU = experiment(passes="estimate", device="cpu")


def resolved(config: ExperimentConfig) -> ExperimentConfig:
    return config.resolve(cuda_available=False)


def ledger(*rows: TrafficRow, peak: int = 100 * MIB) -> LedgerResult:
    phases = dict.fromkeys(row.phase for row in rows if row.phase)
    return LedgerResult(
        peak=peak,
        peak_phase="forward",
        at_peak={},
        phase_peak={phase: PhasePeak(peak, {}) for phase in phases},
        after_step={},
        traffic=list(rows),
        step_s=1,
        num_storages=1,
        from_allocator={"block_rounding": 7 * BLOCK_BYTES, "cublas_workspace": 64 * MIB},
    )


def row(phase: str, name: str = "aten::mm", moved: int = 0, flops: int = 0) -> TrafficRow:
    return TrafficRow(name, "matrix_product", phase, 1, moved, 0, flops)


def step(needed: int, seconds: float | None = 1.0, flops: int = 100, moved: int = 100) -> LogicalStep:
    """What a logical step takes, in a single phase."""
    time = seconds or 0.0
    taken = Amounts(flops, moved, 0, time, time, time)
    return LogicalStep({"forward": taken}, needed=needed, peak_phase="backward")


def seconds(line: Affine, least: float = 0.5, most: float = 2.0) -> Lines:
    """A predicted time, at least so many times as long, and at most."""
    return {"seconds": line, "least": line.times(least), "most": line.times(most)}


# Forward multiplies in every physical batch; noise moves bytes once.
COST = StepCost(
    {
        "forward": PhaseCost(each={"flops": Affine(0.0, 67e10), **seconds(Affine(0.0, 0.02))}),
        "noise": PhaseCost(once={"moved": Affine(3350e7), **seconds(Affine(0.03))}),
    }
)

"""A ledger small enough to check by hand, in MiB: parameters 4 all along, a forward, a backward, an end.

event     0    1    2  |  3    4    5    6  |  7
total 4  12   16   12  | 28   30   22   20  | 20
"""

import dataclasses
from pathlib import Path
from typing import Any

from example_config import experiment

from dpprof.config.flat import to_flat
from dpprof.findings.tables import LedgerTables, compute
from dpprof.record.figures.figures import Figures
from dpprof.record.figures.results import Result
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import HeldTensor, LedgerResult, PhaseMark, PhasePeak, StepTimeline, TrafficRow
from dpprof.record.record import Memory, PassOutcome, PassStatus, Record

MIB = 2**20
CONFIG = experiment(trainer="DPSGDTrainer", model_size="tiny", batch_size=2, seq_len=16).resolve(
    cuda_available=False
)
AT_PEAK = {
    "parameters": 4 * MIB,
    "activations": 8 * MIB,
    "per_sample_gradients": 16 * MIB,
    "temporary": 2 * MIB,
}


def timeline(**changes: Any) -> StepTimeline:
    """The step; the last event turns per-sample gradients into sums, between phases."""
    events: list[tuple[float, str, int, str | None]] = [
        (0.10, "activations", 8, None),
        (0.15, "temporary", 4, None),
        (0.20, "temporary", -4, None),
        (0.30, "per_sample_gradients", 16, None),
        (0.35, "temporary", 2, None),
        (0.40, "activations", -8, None),
        (0.42, "temporary", -2, None),
        (0.50, "per_sample_gradients", 16, "summed_gradients"),
    ]
    seconds, category, num_mib, moved_to = zip(*events, strict=True)
    made = StepTimeline(
        start={"parameters": 4 * MIB},
        seconds=list(seconds),
        category=list(category),
        num_bytes=[MIB * n for n in num_mib],
        moved_to=list(moved_to),
        phases=[PhaseMark("forward", 0.05, 0.25, 0, 3), PhaseMark("backward", 0.27, 0.45, 3, 7)],
        step_s=0.6,
        peak_event=4,
        storages=[
            held(4, "parameters", [1024, 1024], "head.weight", "", None, "aten::empty"),
            held(8, "activations", [2, 1024, 1024], "", "blocks.0.mlp_in", "forward", "aten::addmm"),
            held(4, "temporary", [1024, 1024], "", "blocks.0.mlp_in", "forward", "aten::gelu"),
            held(16, "per_sample_gradients", [2, 2048, 1024], "head.weight", "head", "backward", "aten::bmm"),
            held(2, "temporary", [], "", "", "backward", "aten::mul"),
        ],
        storage_index=[1, 2, 2, 3, 4, 1, 4, 3],
        num_present=1,
    )
    return dataclasses.replace(made, **changes)


def held(
    mib: int, category: str, shape: list[int], name: str, module: str, phase: str | None, operator: str
) -> HeldTensor:
    return HeldTensor(mib * MIB, category, shape, "float32", name, module, phase, operator)


def ledger(**changes: Any) -> LedgerResult:
    """The figures of the step."""
    made = LedgerResult(
        peak=30 * MIB,
        peak_phase="backward",
        at_peak=dict(AT_PEAK),
        phase_peak={
            "forward": PhasePeak(
                16 * MIB, {"parameters": 4 * MIB, "activations": 8 * MIB, "temporary": 4 * MIB}
            ),
            "backward": PhasePeak(30 * MIB, dict(AT_PEAK)),
        },
        after_step={"parameters": 4 * MIB, "summed_gradients": 16 * MIB},
        traffic=[
            TrafficRow("aten::bmm", "matrix_product", "backward", 3, 10 * MIB, 16 * MIB, 8 * 10**9),
            TrafficRow("aten::mm", "matrix_product", "forward", 2, 6 * MIB, 2 * MIB, 3 * 10**9),
            TrafficRow("aten::add", "elementwise", "forward", 1, 4 * MIB, 2 * MIB, 0),
            TrafficRow("aten::copy_", "copy", None, 1, MIB, MIB, 0),
        ],
        step_s=0.6,
        num_storages=4,
    )
    return dataclasses.replace(made, **changes)


def record(**changes: Any) -> Record:
    """A record with this ledger; its allocator saw 0.3 MiB more."""
    made = Record(
        to_flat(CONFIG),
        {"cpu": "A & B", "torch_version": "2.13", "opacus_version": "1.6"},
        passes={name: PassOutcome(PassStatus.FINISHED) for name in ("clean", "memory", "ledger")},
        num_parameters=1_234_567,
        step_s=[0.2, 0.2, 0.2],
        phase_s={"forward": [0.04, 0.06, 0.05], "backward": [0.1, 0.1, 0.1]},
        memory=Memory(
            peak_allocated=30 * MIB + 3 * MIB // 10, phase_peak={"forward": 16 * MIB, "backward": 31 * MIB}
        ),
        ledger=ledger(),
    )
    return dataclasses.replace(made, **changes)


def result(record: Record, at: Path = Path("run")) -> Result:
    """The result with this record."""
    return Result("run", RunFolder(at), CONFIG, record, None)


def tables(record: Record, of: StepTimeline | None = None) -> LedgerTables:
    """The tables of this ledger in such a record, with its timeline or another one."""
    figures = Figures.of(record)
    assert figures.ledger is not None
    assert record.ledger is not None
    return compute(figures, figures.ledger, record.ledger, of or timeline())


def folder(at: Path, record: Record | None, timeline: StepTimeline | None) -> RunFolder:
    """A run folder with these in it."""
    made = RunFolder(at)
    made.create(CONFIG)
    if record is not None:
        made.write_record(record)
    if timeline is not None:
        made.write_ledger(ledger(), timeline)
    return made

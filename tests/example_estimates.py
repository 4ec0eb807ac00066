"""One experiment estimated for an H200 and measured on one, with figures that can be checked by hand."""

import dataclasses
from typing import Any

from example_results import MIB, result

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.record.figures.results import Result
from dpprof.record.ledger import TrafficRow
from dpprof.record.record import PassOutcome, PassStatus

FLAT, GHOST = "DPSGDTrainer", "DPGhostClippingTrainer"
HELD = {"parameters": 40.0, "per_sample_gradients": 60.0}
H200 = {"gpu": "NVIDIA H200", "gpu_memory_gib": "139.8", "torch_version": "2.13.0"}


def estimate(trainer: str = FLAT, target: str = "H200", peak: float = 100, **settings: Any) -> Result:
    """An estimate of `peak` MiB with one phase, which is predicted to take 2 ms on an H200."""
    held = {"parameters": 40.0, "per_sample_gradients": peak - 40}
    made = result(
        trainer, step_s=[1.0], at_peak=held, passes="estimate", device="cuda", target=target, **settings
    )
    record = made.record
    assert record is not None
    assert record.ledger is not None
    record.passes = {"estimate": PassOutcome(PassStatus.FINISHED)}
    record.step_s, record.phase_s = [], {}
    record.ledger.traffic = [moving(1.0)]
    if target == "none":
        record.ledger.traffic[0].predicted_s = 0.0
    record.ledger.from_allocator = {"cublas_workspace": 32 * MIB}
    record.memory.peak_allocated = round((peak + 32) * MIB)
    return made


def moving(ms: float) -> TrafficRow:
    """An operator that moves what an H200 moves in so many ms, and is predicted to take twice that."""
    row = TrafficRow("aten::unique_dim", "other", "backward", 1, round(ms * 4_800_000_000), 0, 0)
    row.predicted_s, row.least_s, row.most_s = 2e-3 * ms, 1.8e-3 * ms, 2.5e-3 * ms
    return row


def measured(trainer: str = FLAT) -> Result:
    """A run on an H200; its configuration says so though this machine has none."""
    made = result(trainer, step_s=[0.003] * 9, peak_mib=132, at_peak=HELD, environment=H200)
    on_cuda = dataclasses.replace(made.config, device="cuda", model_size="1b", vocab_size=0)
    sizes = ExperimentConfig(device="cuda").resolve(cuda_available=True)
    names = ("vocab_size", "hidden_dim", "num_layers", "num_heads")
    config = dataclasses.replace(on_cuda, **{name: getattr(sizes, name) for name in names})
    return dataclasses.replace(made, config=config)


def both(*found: Result) -> Comparison:
    return compare("both", {"guess": found[:1], "truth": found[1:]})

"""Estimates for CUDA, held against torch's real CUDA allocator: kept peaks of the third step, without a GPU.

`cuda_peaks.csv` has what torch 2.13 counted with kernels that do nothing: the dispatcher, the host code of
every kernel and the caching allocator are torch's own. Peaks are in bytes: `requested` by storages,
`allocated` with what blocks are larger.
"""

import csv
from pathlib import Path

import pytest
from covering import sampled
from example_config import experiment
from example_runs import known, measured

from dpprof.config.devices import DEVICES
from dpprof.vocabulary.units import MIB

PEAKS = list(csv.DictReader(Path(__file__).with_name("cuda_peaks.csv").open()))
# A trainer for each GPU, precision, length and optimizer of the small model.
SAMPLE = [
    ("H100", "small", "128", "fp32", "sgd", "StandardTrainer"),
    ("H100", "small", "512", "fp32", "sgd", "DPGhostClippingTrainer"),
    ("H100", "small", "128", "bf16", "sgd", "DPSGDTrainer"),
    ("H100", "small", "512", "bf16", "sgd", "DPFastGradientClippingTrainer"),
    ("A100-80GB", "small", "512", "fp32", "sgd", "DPFastGradientClippingTrainer"),
    ("A100-80GB", "small", "512", "bf16", "sgd", "StandardTrainer"),
    ("H100", "small", "128", "fp32", "adamw", "StandardTrainer"),
]
NAMES = ("gpu", "model_size", "seq_len", "precision", "optimizer", "trainer")
CASES = [tuple(row[name] for name in NAMES) for row in PEAKS]


@pytest.mark.parametrize(NAMES, sampled(CASES, SAMPLE))
def test_the_peak_is_the_allocators(
    gpu: str, model_size: str, seq_len: str, precision: str, optimizer: str, trainer: str, tmp_path: Path
) -> None:
    row = PEAKS[CASES.index((gpu, model_size, seq_len, precision, optimizer, trainer))]
    config = experiment(
        trainer=trainer,
        model_size=model_size,
        batch_size=int(row["batch_size"]),
        seq_len=int(seq_len),
        precision=precision,
        optimizer=optimizer,
        device="cuda",
        target=gpu,
        savings=False,
        passes="estimate",
    ).resolve(cuda_available=False)
    record = measured(tmp_path, config)
    workspaces = 2 * round(DEVICES[gpu].workspace_mib * MIB)
    beyond = int(row["requested"]) - known(record.ledger).peak - workspaces
    # In bf16, attention keeps its random state, which no tensor of the CPU's shows. AdamW's counts of steps,
    # 4 bytes for each tensor, lie in main memory there.
    assert abs(beyond) <= (0 if (precision, optimizer) == ("fp32", "sgd") else 512)
    assert record.memory.peak_allocated == pytest.approx(int(row["allocated"]), rel=0.0025)

"""Does the ledger tell the truth? Its peak beside the allocator's own, on real and on fake tensors.

    python benchmarks/ledger_truth.py [--sizes tiny,small] [--batch-sizes 2,4] [--seq-len 128]

Prints a Markdown table; the one kept is `docs/results/ledger_cpu.md`. CPU only; takes two minutes.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.record.figures.ledger import LedgerFigures
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS
from dpprof.vocabulary.units import MIB

HEADER = [
    "model",
    "batch",
    "trainer",
    "allocator MiB",
    "ledger MiB",
    "unexplained %",
    "fake MiB",
    "most of it",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="tiny,small")
    parser.add_argument("--batch-sizes", default="2,4")
    parser.add_argument("--seq-len", type=int, default=128)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    print("| " + " | ".join(HEADER) + " |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | --- |")
    for size in options.sizes.split(","):
        for batch_size in map(int, options.batch_sizes.split(",")):
            for trainer in DEFAULT_TRAINERS:
                config = ExperimentConfig(
                    trainer=trainer,
                    model_size=size,
                    batch_size=batch_size,
                    seq_len=options.seq_len,
                    device="cpu",
                    how=MeasuringConfig(warmup_steps=1, measured_steps=1, passes="clean,memory,ledger"),
                ).resolve(cuda_available=False)
                print("| " + " | ".join(row(config)) + " |", flush=True)


def row(config: ExperimentConfig) -> list[str]:
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run")
        folder.create(config)
        record = run_experiment(config, folder, lambda _: None)
    with fake_tensors(load_trainer(config.trainer)):
        kept = keep_ledger(lambda: Training(config), Ledger("cpu"), 1)
    ledger = record.ledger
    assert ledger is not None
    unexplained = LedgerFigures.of(record, ledger).unexplained_pct
    assert unexplained is not None
    category, most = max(ledger.at_peak.items(), key=lambda item: item[1])
    return [
        config.model_title,
        str(config.batch_size),
        config.trainer,
        f"{(record.memory.peak_allocated or 0) / MIB:.3f}",
        f"{ledger.peak / MIB:.3f}",
        f"{unexplained:.3f}",
        f"{kept.account.peak / MIB:.3f}",
        f"{category} {100 * most / ledger.peak:.0f} %, in {ledger.peak_phase}",
    ]


if __name__ == "__main__":
    main()

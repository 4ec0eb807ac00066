"""Estimates of experiments that standard input gives (`answers.py`): bytes of the allocator, and seconds.

python benchmarks/gpu/estimated.py < settings.jsonl

`oldest_first` among the settings is the order in which the allocator of the GPU's torch takes blocks.
"""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import opacus  # noqa: F401  imported once, before the forks
from answers import answer_lines

from dpprof.config.flat import from_flat
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes import caching_allocator
from dpprof.record.figures.step import LogicalStep
from dpprof.record.folder import RunFolder


def estimated(settings: dict[str, Any]) -> dict[str, Any]:
    """Estimate an experiment. `predicted` are a step's seconds, with the least and the most."""
    values = {"device": "cuda"} | settings | {"passes": "estimate", "savings": False}
    oldest_first = values.pop("oldest_first", caching_allocator.OLDEST_FIRST)
    config = from_flat(values).resolve(cuda_available=False)
    order = patch.object(caching_allocator, "OLDEST_FIRST", oldest_first)
    with tempfile.TemporaryDirectory() as place, order:
        folder = RunFolder(Path(place) / config.run_name)
        folder.create(config)
        record = run_experiment(config, folder, lambda _: None)
    ledger = record.ledger
    assert ledger is not None, "it was estimated"
    step = LogicalStep.of(config, ledger)
    return {
        "peak": ledger.peak,
        "allocated": record.memory.peak_allocated,
        **(vars(ledger.segments) if ledger.segments else {}),
        "doubts": {doubt.name: doubt.num_bytes for doubt in ledger.doubts},
        "predicted": step.time,
        "phases": step.by_phase,
    }


if __name__ == "__main__":
    answer_lines(estimated)

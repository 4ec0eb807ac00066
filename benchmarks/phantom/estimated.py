"""The estimate of an experiment whose settings standard input gives: what the allocator takes, in bytes."""

import json
import sys
import tempfile
from pathlib import Path

from dpprof.config.flat import from_flat
from dpprof.measure.experiment import run_experiment
from dpprof.record.folder import RunFolder


def main() -> None:
    """Estimate, and print a line of JSON."""
    settings = json.loads(sys.stdin.read())
    how = {"device": "cuda", "passes": "estimate", "savings": False}
    config = from_flat({**settings, **how}).resolve(cuda_available=False)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / config.run_name)
        folder.create(config)
        record = run_experiment(config, folder, lambda _: None)
    ledger = record.ledger
    assert ledger is not None
    assert ledger.segments is not None
    figures = {"peak": ledger.peak, "allocated": record.memory.peak_allocated, **vars(ledger.segments)}
    figures["seconds"] = record.passes["estimate"].seconds
    figures["doubts"] = {doubt.name: doubt.num_bytes for doubt in ledger.doubts}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

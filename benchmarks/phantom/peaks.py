"""Peaks of training steps by torch's CUDA allocator, for experiments that standard input gives.

Each line of standard input is a JSON object of settings that differ from the defaults; each line of output
has the peaks of that experiment's last step, in bytes, or its error. Every experiment runs in a process of
its own. With EVENTS_FOLDER, the allocator's events are kept there, a file for each experiment.

    python benchmarks/phantom/run.py FOLDER benchmarks/phantom/peaks.py < settings.jsonl
"""

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

NUM_STEPS = int(os.environ.get("PHANTOM_STEPS", "13"))  # by default as many as a run does


def peaks(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the steps of an experiment and return the peaks of the last one."""
    import torch

    from dpprof.config.flat import from_flat
    from dpprof.measure.observe import Observer
    from dpprof.measure.trainers.training import Training

    config = from_flat(settings | {"device": "cuda"}).resolve(cuda_available=True)
    folder = os.environ.get("EVENTS_FOLDER")
    if folder:
        torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=10**7)
    training = Training(config)
    training.run(NUM_STEPS - 1, Observer())
    torch.cuda.reset_peak_memory_stats()
    training.run(1, Observer())
    stats = torch.cuda.memory_stats()
    if folder:
        _keep_events(Path(folder), settings)
    return {
        "requested": stats["requested_bytes.all.peak"],
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "segments": stats["segment.all.peak"],
        "retries": stats["num_alloc_retries"],
    }


def _keep_events(folder: Path, settings: dict[str, Any]) -> None:
    import torch

    events = torch.cuda.memory._snapshot()["device_traces"][0]
    name = "_".join(str(value) for value in settings.values()).replace("/", "-")
    rows = [(event["action"], event.get("addr", 0), event["size"]) for event in events]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))


def main() -> None:
    """Run each experiment in a fork, and print its answer."""
    for line in sys.stdin:
        settings = json.loads(line)
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        try:
            answer = peaks(settings)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"settings": settings, **answer}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()

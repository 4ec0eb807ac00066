"""Peaks of training steps by torch's allocator, for experiments that standard input gives (`answers.py`).

Each line has settings that differ from the defaults, and perhaps `share`, that of the GPU's memory which the
process may take. The answer has the peaks of each step, `[allocated, reserved]`, and those of the last one by
name, in bytes. With EVENTS_FOLDER, the allocator's events are kept there, a file for each experiment.

    python benchmarks/gpu/peaks.py < settings.jsonl
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import opacus  # noqa: F401  imported once, before the forks
import torch
from answers import answer_lines
from torch.profiler import ProfilerActivity, profile

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.measure.observe import Observer
from dpprof.measure.passes.clean import PeakMemory
from dpprof.measure.passes.events import read
from dpprof.measure.passes.memory import AllocatedBytes
from dpprof.measure.trainers.training import Training

NUM_STEPS = int(os.environ.get("PEAKS_STEPS", "13"))  # by default as many as a run does


def peaks(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the steps of an experiment and return their peaks."""
    values = {"device": "cuda"} | settings
    share = values.pop("share", None)
    is_cuda = values["device"] == "cuda"
    config = from_flat(values).resolve(cuda_available=is_cuda)
    if not is_cuda:
        return _on_cpu(config)
    if share is not None:
        torch.cuda.set_per_process_memory_fraction(share)
    folder = os.environ.get("EVENTS_FOLDER")
    if folder:
        torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=10**7)
    training, found = Training(config), PeakMemory()
    training.run(NUM_STEPS, found)
    stats = torch.cuda.memory_stats()
    if folder:
        _keep_events(Path(folder), settings)
    return {
        "steps": list(zip(found.allocated, found.reserved, strict=True)),
        "requested": stats["requested_bytes.all.peak"],
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "segments": stats["segment.all.peak"],
        "retries": stats["num_alloc_retries"],
    }


def _on_cpu(config: ExperimentConfig) -> dict[str, Any]:
    """Return what the CPU's allocator handed out; it reserves nothing."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        Training(config).run(NUM_STEPS, Observer())
    recording = read(profiler, "cpu")
    levels = AllocatedBytes(recording, 0)
    steps = [(levels.peak(step), None) for step in recording.steps]
    return {"steps": steps, "allocated": steps[-1][0]}


def _keep_events(folder: Path, settings: dict[str, Any]) -> None:
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    name = "_".join(str(value) for value in settings.values()).replace("/", "-")
    rows = [(event["action"], event.get("addr", 0), event["size"]) for event in events]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))


if __name__ == "__main__":
    answer_lines(peaks)

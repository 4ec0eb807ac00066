"""Estimates for CUDA beside torch's real CUDA allocator, on a stand-in for a GPU: docs/results/phantom.md.

There is no GPU: kernels compute nothing (`stand_in.py`). Torch's dispatcher, the host code of its kernels,
cuDNN's planner and the caching allocator are the real ones. Takes about an hour on two cores, and 5 GB.

    python benchmarks/phantom/phantom_matrix.py FOLDER [--only PATTERN] [--output docs/results/phantom.md]
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from phantom_table import written
from stand_in import PROJECT, environment, python_of

from dpprof.vocabulary.units import mib

# Both sides of the table: what torch allocates, and the estimates.
GPU = PROJECT / "benchmarks" / "gpu"
TRAINERS = ("standard", "flat", "ghost", "fast", "bk", "mixed")
SMALL = [("small", 128), ("small", 512), ("medium", 512)]
TARGETS = {"H100": "H100", "A100": "A100-80GB", "T4": "T4"}
HUGGING_FACE: list[dict[str, Any]] = [
    {"workload": "huggingface:gpt2", "batch_size": 4, "seq_len": 256},
    {
        "workload": "huggingface:gpt2",
        "batch_size": 4,
        "seq_len": 256,
        "model_config": "attn_implementation=eager",
    },
    {"workload": "huggingface:llama-1b", "train": "lora", "batch_size": 2, "seq_len": 256},
    {"workload": "huggingface:vit-base", "batch_size": 8, "seq_len": 1},
    {"workload": "huggingface:resnet-50", "batch_size": 8, "seq_len": 1},
]
TRANSFORMER = {"model_size": "medium", "batch_size": 4, "seq_len": 512}
OTHERS = [
    {**TRANSFORMER, "optimizer": "adamw"},
    {**TRANSFORMER, "accumulation_steps": 2},
    {**TRANSFORMER, "activation_checkpointing": True},
]
Case = tuple[str, dict[str, Any]]


def cases() -> Iterator[Case]:
    """Yield the GPU and the settings of each experiment."""
    for gpu, (size, seq_len), precision, trainer in itertools.product(
        ("H100", "A100"), [*SMALL, ("1b", 512)], ("fp32", "bf16"), TRAINERS
    ):
        yield (
            gpu,
            {
                "model_size": size,
                "batch_size": 4,
                "seq_len": seq_len,
                "precision": precision,
                "trainer": trainer,
            },
        )
    for (size, seq_len), trainer in itertools.product(SMALL, TRAINERS):
        yield (
            "T4",
            {
                "model_size": size,
                "batch_size": 4,
                "seq_len": seq_len,
                "precision": "fp32",
                "trainer": trainer,
            },
        )
    for more, precision, trainer in itertools.product(
        [*HUGGING_FACE, *OTHERS], ("fp32", "bf16"), ("standard", "flat", "bk")
    ):
        if not (trainer == "flat" and more.get("workload") == "huggingface:resnet-50"):
            yield "H100", {**more, "precision": precision, "trainer": trainer}


def name(case: Case) -> str:
    """Return the case as a line of text."""
    gpu, settings = case
    return " ".join([gpu, *(str(value) for value in settings.values())])


def on_stand_in(folder: Path, case: Case, **more: str) -> dict[str, Any]:
    """Run the steps of an experiment on the stand-in, and return its peaks."""
    gpu, settings = case
    done = subprocess.run(
        [python_of(folder), "-W", "ignore", GPU / "peaks.py"],
        input=json.dumps(settings),
        env=environment(folder, gpu, **more),
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-300:]}
    return found


def estimated(case: Case) -> dict[str, Any]:
    """Return the estimate of an experiment, by a process without the stand-in."""
    gpu, settings = case
    done = subprocess.run(
        [sys.executable, "-W", "ignore", GPU / "estimated.py"],
        input=json.dumps({**settings, "target": TARGETS[gpu]}),
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-300:]}
    return found


def against(folder: Path, case: Case, real: dict[str, Any]) -> dict[str, Any]:
    """Return the estimate of a case, and whether the steps run on a device 2 % around its smallest."""
    found = estimated(case)
    if "error" not in real and "error" not in found:
        for side, share in (("below", 0.98), ("above", 1.02)):
            limit = {"PHANTOM_MIB": str(mib(share * found["least"])), "PHANTOM_CONTEXT_MIB": "0"}
            limit["PEAKS_STEPS"] = "4"
            found[side] = "error" not in on_stand_in(folder, case, **limit)
    return found


def kept(path: Path, chosen: list[Case], find: Callable[[Case], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Find what a file does not have, by two processes, and add it there; returns all by case."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {row.pop("case"): row for row in map(json.loads, lines)}
    missing = [case for case in chosen if name(case) not in known]
    with ThreadPoolExecutor(2) as pool, path.open("a") as out:
        for case, row in zip(missing, pool.map(find, missing), strict=True):
            known[name(case)] = row
            print(json.dumps({"case": name(case), **row}), file=out, flush=True)
            print(name(case), flush=True)
    return known


def main() -> None:
    """Run the matrix on two processes, keeping each answer, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a regular expression of cases")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    environment(folder)  # built before two processes need it
    chosen = [case for case in cases() if re.search(asked.only, name(case))]
    real = kept(folder / "peaks.jsonl", chosen, partial(on_stand_in, folder))
    found = kept(folder / "estimates.jsonl", chosen, lambda case: against(folder, case, real[name(case)]))
    if asked.output:
        asked.output.write_text(
            written([(name(case), real[name(case)], found[name(case)]) for case in chosen])
        )


if __name__ == "__main__":
    main()

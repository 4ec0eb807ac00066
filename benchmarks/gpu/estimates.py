"""Estimates everything that `run.py` measures, so that a GPU's machine need not: `estimates.json`.

    python benchmarks/gpu/estimates.py        # ten minutes on two cores

An H200 differs from the H100, for which it estimates, by no more than the size of its memory and its rates.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments import Experiment, plan_for

from dpprof import __version__

HERE = Path(__file__).parent
ESTIMATES = HERE / "estimates.json"
TARGET = "H100"
# The allocator of torch 2.11, which the GPU's machine has, takes the free block at the lowest address.
_THERE = {"target": TARGET, "oldest_first": False}
_WORKERS = 2


def main() -> None:
    """Estimate both plans, and write the file."""
    rows: dict[str, Any] = {}
    for device, there in (("cpu", {}), ("cuda", _THERE)):
        plan = plan_for(device)
        experiments = {each.name: each for each in (*plan.memory, *plan.times) if each.share is None}
        rows |= dict(estimated(experiments.values(), device, there))
    found = {"target": TARGET, "dpprof": __version__, "torch": _torch_version(), "rows": rows}
    ESTIMATES.write_text(json.dumps(found, indent=1) + "\n")


def estimated(
    experiments: Iterable[Experiment], device: str, there: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each experiment's name and estimate; `there` has the target, a listed GPU or a file of times."""
    chosen = list(experiments)
    shares = [chosen[number::_WORKERS] for number in range(_WORKERS)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        for part, answers in zip(
            shares, pool.map(lambda part: _answers(part, device, there), shares), strict=True
        ):
            yield from zip((each.name for each in part), answers, strict=True)


def _answers(part: Sequence[Experiment], device: str, there: dict[str, Any]) -> list[dict[str, Any]]:
    lines = [json.dumps(each.values | {"device": device, "limit_s": 300} | there) for each in part]
    command = [sys.executable, "-W", "ignore", str(HERE / "estimated.py")]
    done = subprocess.run(
        command,
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for each, answer in zip(part, answers, strict=True):
        del answer["settings"]
        print(each.name, answer.get("error", f"{answer['seconds']} s"), file=sys.stderr, flush=True)
    return answers


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


if __name__ == "__main__":
    main()

"""Does the regression check hold? Repeats one sweep, then makes it slower and larger by 10 %.

    python benchmarks/regression_trial.py FOLDER [--sweeps 7]

Measures a sweep of four `tiny` cells, three runs each, over and over into FOLDER (what is there already is
kept), then one whose steps do about 10 % more work and one whose peak is 10 % higher. Compares each of the
equal sweeps with every one before it, and the other two with the first, by `dpprof compare --baseline`.
Prints a Markdown table; the one kept is `docs/results/regression_trial.md`. CPU only; takes 20 minutes on a
machine that has nothing else to do.
"""

import argparse
import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.comparison.comparison import Comparison
from dpprof.measure.passes.machine import NUM_BLOCKS, fixed_computation
from dpprof.measure.workloads.workload import Workload, build_workload
from dpprof.record.figures.names import PEAK

BATCH_SIZE, SEQ_LEN, REPEATS, GROWTH, LIMIT = 2, 64, 3, 0.10, "5%"


def tiny(config: ExperimentConfig) -> Workload:
    """The built-in `tiny` transformer; made slower and larger as the environment says.

    The extra work is done before forward, where little memory is in use: it is real work, of the kind of the
    pace pass's fixed computation, and takes longer when the machine does.
    """
    built = build_workload(dataclasses.replace(config, workload="SimpleBigModel"))
    num_blocks = json.loads(os.environ.get("TRIAL_MORE_BLOCKS", "{}")).get(config.trainer, 0)
    if num_blocks:
        work = fixed_computation(config.device, num_blocks)
        built.model.register_forward_pre_hook(lambda *_: work())
    num_bytes = json.loads(os.environ.get("TRIAL_MORE_BYTES", "{}")).get(config.trainer, 0)
    if num_bytes:
        built.model.ballast = [torch.empty(num_bytes, dtype=torch.uint8)]  # type: ignore[assignment]
    return built


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sweeps", type=int, default=7)
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    equal = [f"equal-{i:02}" for i in range(options.sweeps)]
    for name in equal:
        sweep(folder, name)
    cells = cells_of(folder, equal[0]).cells
    steps = {cell.trainer: cell.figures["pace/step_ratio"] * NUM_BLOCKS for cell in cells}
    blocks = {trainer: max(1, round(GROWTH * step)) for trainer, step in steps.items()}
    sweep(folder, "slower", TRIAL_MORE_BLOCKS=json.dumps(blocks))
    grown = {cell.trainer: round(GROWTH * cell.figures[PEAK] * 2**20) for cell in cells}
    sweep(folder, "larger", TRIAL_MORE_BYTES=json.dumps(grown))
    added = [100 * blocks[trainer] / steps[trainer] for trainer in steps]
    print("| compared | worse | exit codes |")
    print("| --- | --- | --- |")
    outcomes = [compare(folder, now, before) for before, now in itertools.combinations(equal, 2)]
    alarms = sum(code != 0 for code, _ in outcomes)
    codes = ", ".join(f"{code} x {count}" for code, count in Counter(code for code, _ in outcomes).items())
    print(f"| {len(equal)} equal sweeps, in pairs | {alarms} of {len(outcomes)} pairs | {codes} |")
    changed = {
        "slower": f"work made {min(added):.1f} to {max(added):.1f} % more",
        "larger": "peak made 10.0 % higher",
    }
    for name, what in changed.items():
        code, worse = compare(folder, name, equal[0])
        print(f"| {what} | {worse} of {len(cells)} cells | {code} |")


def sweep(folder: Path, name: str, **more: str) -> None:
    """Measure a sweep by the real command, or go on with it."""
    settings: dict[str, Any] = {
        "workload": f"{Path(__file__).stem}:{tiny.__name__}",
        "model_sizes": "tiny",
        "batch_sizes": BATCH_SIZE,
        "seq_lens": SEQ_LEN,
        "repeats": REPEATS,
        "measured_steps": 30,
        "passes": "clean,pace,memory",
        "device": "cpu",
        "sweep_name": name,
        "resume": "true",
    }
    options = [text for option, value in settings.items() for text in (f"--{option}", str(value))]
    ended = dpprof(folder, "sweep", *options, **more)
    if ended.returncode != 0:
        sys.exit(ended.stdout + ended.stderr)


def cells_of(folder: Path, name: str) -> Comparison:
    return Comparison.from_data(json.loads((folder / "runs" / name / "summary.json").read_text()))


def compare(folder: Path, now: str, baseline: str) -> tuple[int, int]:
    """Exit code, and how many cells got worse."""
    sides = [str(folder / "runs" / name) for name in (now, baseline)]
    ended = dpprof(folder, "compare", sides[0], "--baseline", sides[1], "--fail-above", LIMIT)
    if ended.returncode not in (0, 4):
        sys.exit(ended.stdout + ended.stderr)
    found = re.search(r"(\d+) of \d+ cells", ended.stderr)
    return ended.returncode, int(found.group(1)) if found else 0


def dpprof(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-m", "dpprof", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()

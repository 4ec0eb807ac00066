"""Does the regression check hold? Repeats one sweep many times, then makes it slower and larger by 10 %.

    python benchmarks/regression_trial.py FOLDER [--sweeps 21]

Measures a sweep of four `tiny` cells, three runs each, over and over into FOLDER (what is there already is
kept), then one with steps made 10 % longer and one with a peak made 10 % higher, and compares each with the
first by `dpprof compare --baseline`. Prints a Markdown table; the one kept is
`docs/results/regression_trial.md`. CPU only; takes half an hour on a machine that must be quiet meanwhile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpprof.config import ExperimentConfig
from dpprof.reports.comparison.cells import PEAK, STEP, Cell, Comparison
from dpprof.workloads.transformer import sequence_loss
from dpprof.workloads.workload import Workload, build_workload

BATCH_SIZE, SEQ_LEN, REPEATS, GROWTH, LIMIT = 2, 64, 3, 0.10, "5%"


def tiny(config: ExperimentConfig) -> Workload:
    """The built-in `tiny` transformer; made slower and larger as the environment says."""
    import dataclasses

    built = build_workload(dataclasses.replace(config, workload="SimpleBigModel"))
    slower_s = json.loads(os.environ.get("TRIAL_SLOWER_S", "{}")).get(config.trainer, 0.0)
    larger = json.loads(os.environ.get("TRIAL_LARGER_BYTES", "{}")).get(config.trainer, 0)
    if larger:
        built.model.ballast = [torch.empty(larger, dtype=torch.uint8)]  # type: ignore[assignment]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        until = time.perf_counter() + slower_s
        while time.perf_counter() < until:
            pass
        return sequence_loss(outputs, targets)

    return Workload(built.model, built.batches, loss if slower_s else built.loss, built.tokens_per_batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sweeps", type=int, default=21)
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"quiet-{i:02}" for i in range(options.sweeps)]
    for name in names:
        sweep(folder, name)
    cells = cells_of(folder, names[0]).cells
    slower = {cell.trainer: GROWTH * cell.figures[STEP] / 1e3 for cell in cells}
    sweep(folder, "slower", TRIAL_SLOWER_S=json.dumps(slower))
    larger = {cell.trainer: round(GROWTH * cell.figures[PEAK] * 2**20) for cell in cells}
    sweep(folder, "larger", TRIAL_LARGER_BYTES=json.dumps(larger))
    single = [one_run(folder, name) for name in [*names, "slower", "larger"]]
    print("| comparison with the first sweep | runs of a cell | found worse | exit codes |")
    print("| --- | ---: | --- | --- |")
    for runs, tried in ((REPEATS, [*names, "slower", "larger"]), (1, single)):
        outcomes = {name: compare(folder, name, tried[0]) for name in tried[1:]}
        repeated = {name: outcomes[name] for name in tried[1:-2]}
        alarms = sum(code != 0 for code, _ in repeated.values())
        codes = ", ".join(str(code) for code, _ in repeated.values())
        print(f"| {len(repeated)} repetitions | {runs} | {alarms} of {len(repeated)} sweeps | {codes} |")
        for name, what in ((tried[-2], "steps 10 % longer"), (tried[-1], "peak 10 % higher")):
            code, worse = outcomes[name]
            print(f"| {what} | {runs} | {worse} of {len(cells)} cells | {code} |")


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


def one_run(folder: Path, name: str) -> str:
    """The file of a sweep's first run of each cell alone."""
    found = cells_of(folder, name)
    cells = [Cell(cell.source, cell.settings, cell.runs[:1]) for cell in found.cells]
    path = folder / f"{name}-one-run.json"
    path.write_text(Comparison(found.name, cells).to_json())
    return path.name


def cells_of(folder: Path, name: str) -> Comparison:
    return Comparison.from_json((folder / "runs" / name / "summary.json").read_text())


def compare(folder: Path, name: str, baseline: str) -> tuple[int, int]:
    """Exit code, and how many cells got worse."""
    place = folder / "runs" / name
    path = place if place.exists() else folder / name
    reference = folder / "runs" / baseline
    ended = dpprof(
        folder,
        "compare",
        str(path),
        "--baseline",
        str(reference if reference.exists() else folder / baseline),
        "--fail-above",
        LIMIT,
    )
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

"""How long does it take to compare a large sweep out of a large MLflow store?

    python benchmarks/large_store.py FOLDER

Measures four `tiny` experiments, copies their run folders under other batch sizes and sequence lengths to a
sweep of 64 cells (the figures are copies: only the time to compare them counts), logs it, adds runs of other
programs until the store has 500, and times `dpprof compare` from the store and from the folders, five times
in turns. What FOLDER has already is kept. Takes five minutes.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mlflow import MlflowClient

from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

NUM_RUNS, ROUNDS, NAME = 500, 5, "sixty-four"
BATCH_SIZES, SEQ_LENS = (1, 2, 4, 8), (64, 128, 256, 512)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    runs = folder / "runs"
    if not (runs / NAME).exists():
        grid = ["--model-sizes", "tiny", "--batch-sizes", "2", "--seq-lens", "64", "--sweep-name", "measured"]
        dpprof(folder, "sweep", *grid, "--resume", "true")
        copy(runs / "measured", runs / NAME)
        dpprof(folder, "log", str(runs / NAME))
    fill(folder)
    sources = {f"store of {NUM_RUNS} runs": NAME, "folders": str(runs / NAME)}
    seconds: dict[str, list[float]] = {what: [] for what in sources}
    for _ in range(ROUNDS):
        for what, source in sources.items():
            started = time.perf_counter()
            dpprof(folder, "compare", source)
            seconds[what].append(time.perf_counter() - started)
    page = (folder / "comparison.html").stat().st_size / 2**20
    print("| 64 cells out of | seconds, median | range | page MiB |")
    print("| --- | ---: | --- | ---: |")
    for what, values in seconds.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"| {what} | {statistics.median(values):.1f} | {spread} | {page:.1f} |")


def copy(measured: Path, sweep: Path) -> None:
    """The measured runs under the settings of every cell."""
    for trainer, batch_size, seq_len in itertools.product(DEFAULT_TRAINERS, BATCH_SIZES, SEQ_LENS):
        source = measured / f"{trainer}_tiny_bs2_seq64"
        target = sweep / f"{trainer}_tiny_bs{batch_size}_seq{seq_len}"
        shutil.copytree(source, target)
        (target / "mlflow.json").unlink(missing_ok=True)
        for name in ("config.json", "record.json"):
            data = json.loads((target / name).read_text())
            (data if name == "config.json" else data["config"]).update(batch_size=batch_size, seq_len=seq_len)
            (target / name).write_text(json.dumps(data))


def fill(folder: Path) -> None:
    """Runs that are none of ours, until there are enough."""
    client = MlflowClient(store(folder))
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for i in range(NUM_RUNS - len(client.search_runs(experiments, max_results=NUM_RUNS))):
        run = client.create_run(experiments[0], run_name=f"other-{i}")
        client.log_metric(run.info.run_id, "loss", 1 / (i + 1))


def store(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


def dpprof(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store(folder)}
    command = [sys.executable, "-m", "dpprof", *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(ended.stdout + ended.stderr)


if __name__ == "__main__":
    main()

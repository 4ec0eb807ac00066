"""Many commands at once on one new store and one runs folder: every one has its own figures.

All start together and are given no name, on a SQLite file that nobody has made yet. Each trains with another
sequence length and, in turns, another precision, so that mixed figures show. Each must say where its folder
is, and that folder and its runs in MLflow must hold its own settings and the same figures, once, finished.
The peaks of memory must rise with the sequence length within a precision.
"""

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from after import last_line
from driven import Driven, environment
from mlflow.entities import Run
from mlflow_server import stored_runs

from dpprof.record.figures.names import PEAK, STEP

_EXPERIMENT = "at once"
_MEASURED = ("--warmup-steps", "1", "--measured-steps", "3", "--passes", "clean,memory")


@dataclass(frozen=True)
class Given:
    """What one of the commands was told."""

    seq_len: int
    precision: str

    def arguments(self, command: str) -> list[str]:
        """Its command line."""
        one = ["--model-size", "tiny", "--batch-size", "2", "--trainer", "standard"]
        one += ["--seq-len", str(self.seq_len), "--precision", self.precision]
        if command == "sweep":
            one = [f"{word}s" if word.startswith("--") else word for word in one]
        return [command, *one, *_MEASURED]


def together(folder: Path, command: str, count: int) -> list[str]:
    """Start that many at once. Returns what is wrong."""
    env = environment(f"sqlite:///{folder}/mlflow.db", _EXPERIMENT)
    everyone = [Given(8 * (index + 1), ("fp32", "bf16")[index % 2]) for index in range(count)]
    runs = [Driven(folder, env, *given.arguments(command)) for given in everyone]
    try:
        for run in runs:
            run.wait()
    finally:
        for run in runs:
            run.end()
    failed = [run for run in runs if run.process.returncode]
    found = [f"exit {run.process.returncode} ({last_line(run.output)})" for run in failed]
    stored = stored_runs(folder / "mlflow.db", _EXPERIMENT)
    expected = count * (2 if command == "sweep" else 1)
    if not found and len(stored) != expected:
        found.append(f"{len(stored)} runs in MLflow instead of {expected}")
    found += [f"{one.info.run_name} is not finished" for one in stored if one.info.status != "FINISHED"]
    peaks: dict[str, list[float]] = {}
    for given, run in zip(everyone, runs, strict=True):
        if run not in failed:
            wrong, peak = _own_figures(given, run, stored)
            found += [f"sequence length {given.seq_len}: {what}" for what in wrong]
            peaks.setdefault(given.precision, []).append(peak)
    found += [f"peaks at {name}: {values}" for name, values in peaks.items() if values != sorted(set(values))]
    return found


def _own_figures(given: Given, run: Driven, stored: Sequence[Run]) -> tuple[list[str], float]:
    """What is wrong with one command's folder and runs, and its peak."""
    said = re.search(r"kept in ([^\s,;]+)", run.output)
    kept = sorted((run.folder / said[1]).rglob("record.json")) if said else []
    if len(kept) != 1:
        return [f"its folder has {len(kept)} records"], 0.0
    record = json.loads(kept[0].read_text(encoding="utf-8"))
    found = []
    for what in ("seq_len", "precision"):
        if record["config"][what] != getattr(given, what):
            found.append(f"its record is of {what} {record['config'][what]}")
    if record["tokens_per_step"] != 2 * given.seq_len:
        found.append(f"its steps had {record['tokens_per_step']} tokens")
    median = 1000 * statistics.median(record["step_s"])
    own = [one.data for one in stored if abs(one.data.metrics.get(STEP, 0.0) - median) < 1e-9 * median]
    if len(own) != 1:
        found.append(f"{len(own)} runs in MLflow have its step time")
    for one in own:
        if (one.params["seq_len"], one.params["precision"]) != (str(given.seq_len), given.precision):
            found.append(f"its run in MLflow is of {one.params['seq_len']}, {one.params['precision']}")
        if one.tags.get("dpprof.sweep", kept[0].parent.parent.name) != kept[0].parent.parent.name:
            found.append(f"its run in MLflow is of {one.tags['dpprof.sweep']}")
    return found, own[0].metrics[PEAK] if own else 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(("command", "count"), [("sweep", 2), ("sweep", 12), ("profile", 12)])
def test_each_has_its_own_figures(command: str, count: int, tmp_path: Path) -> None:
    assert together(tmp_path, command, count) == []

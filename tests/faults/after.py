"""What must hold after a fault, whatever it was."""

import json
import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from disturbances import Row, passes
from driven import NAME, TRAINERS, Driven
from mlflow.entities import Run
from mlflow_server import MlflowServer

from dpprof.record.figures.names import RATIOS_OF_TIMES, STEP

# Ratios of times are left out where a run was disturbed, which a busy machine decides.
_VARYING = RATIOS_OF_TIMES | {"best/step_ms_ratio"}
_GONE_WITHIN_S = 15.0
# After a signal the driver has as long as this, on a busy machine.
PROMPT_S = 30.0


@dataclass(frozen=True)
class Logged:
    """What MLflow has of a run: names only."""

    metrics: frozenset[str]
    params: frozenset[str]
    artifacts: frozenset[str]


def logged(run: Run, server: MlflowServer) -> Logged:
    """The names of what a run has."""
    return Logged(frozenset(run.data.metrics) - _VARYING, frozenset(run.data.params), server.artifacts(run))


def finished_passes(folder: Path) -> dict[str, set[str]]:
    """The finished passes of each run folder of the sweep."""
    return {
        cell.name: {name for name, status in passes(cell).items() if status == "finished"}
        for cell in (folder / "runs" / NAME).glob("[A-Z]*_seq*")
    }


def at_its_end(row: Row, run: Driven, server: MlflowServer, before: dict[str, set[str]]) -> list[str]:
    """What is wrong when the disturbed sweep has ended. `before` are the passes finished at the fault."""
    found = _left(run) + _tracebacks(run)
    after = finished_passes(run.folder)
    for cell, names in before.items():
        lost = names - after.get(cell, set())
        if lost:
            found.append(f"lost the figures of {', '.join(sorted(lost))} of {_short(cell)}")
    if row.ends_orderly:
        runs = [one.info for one in server.runs(run.folder.name)]
        found += [f"{info.run_name} is RUNNING" for info in runs if info.status == "RUNNING"]
    return found


def in_the_end(run: Driven, server: MlflowServer, undisturbed: dict[str, Logged]) -> list[str]:
    """What is wrong after the sweep was resumed or logged."""
    found = _left(run) + _tracebacks(run)
    if run.process.returncode != 0:
        found.append(f"exit {run.process.returncode} ({last_line(run.output)})")
    runs = server.runs(run.folder.name)
    times = Counter(one.info.run_name for one in runs)
    found += [f"{name} is there {count} times" for name, count in times.items() if count > 1]
    found += [f"{one.info.run_name} is {one.info.status}" for one in runs if one.info.status != "FINISHED"]
    by_name = {one.info.run_name: one for one in runs}
    found += [f"{name} is not in MLflow" for name in undisturbed.keys() - by_name.keys()]
    found += [f"{name} is too much in MLflow" for name in by_name.keys() - undisturbed.keys()]
    for name in sorted(undisturbed.keys() & by_name.keys()):
        found += _differences(name, undisturbed[name], logged(by_name[name], server))
    return found + _foreign_figures(run.folder, runs)


def _differences(name: str, expected: Logged, got: Logged) -> list[str]:
    found = []
    for what in ("metrics", "params", "artifacts"):
        wanted, there = getattr(expected, what), getattr(got, what)
        if wanted != there:
            examples = ", ".join(sorted(wanted ^ there)[:2])
            found.append(f"{name} has {len(there)} of {len(wanted)} {what} ({examples})")
    return found


def _foreign_figures(folder: Path, runs: list[Run]) -> list[str]:
    """Runs whose step time is not that of their folder."""
    found = []
    for run in runs:
        record = folder / "runs" / NAME / run.data.tags.get("dpprof.run", "") / "record.json"
        if not record.exists() or STEP not in run.data.metrics:
            continue
        median = 1000 * statistics.median(json.loads(record.read_text(encoding="utf-8"))["step_s"])
        if abs(median - run.data.metrics[STEP]) > 1e-6 * median:
            found.append(f"{run.info.run_name} has the figures of another measurement")
    return found


def _left(run: Driven) -> list[str]:
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := run.left():
        if time.monotonic() > deadline:
            return [f"{len(left)} processes are left"]
        time.sleep(0.1)
    return []


def _tracebacks(run: Driven) -> list[str]:
    return ["a traceback"] if "Traceback (most recent call last)" in run.output else []


def last_line(output: str) -> str:
    """The end of what a command said, for a table."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return re.sub(r"[|\s]+", " ", lines[-1])[:160] if lines else "without a word"


def _short(cell: str) -> str:
    return next((name for name in TRAINERS if cell.startswith(name)), cell)

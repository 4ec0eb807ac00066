"""Where the seconds of a command went: by its run folders, and by the samples of its processes' stacks."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# What marks the command of each kind of process, and what a table of its parts is called.
_DRIVING = "the driving process"
_KINDS = {
    "--check": "imports of the process that checks the workload",
    "--fork": "imports of the process that estimates are forks of",
    "dpprof/measure/__main__.py": "imports of measuring processes",
    "-m dpprof ": _DRIVING,
}

# Seconds of parts that add up, by the name of their table.
Parts = dict[str, dict[str, float]]


def parts_of_runs(began: float, seconds: float, records: Iterable[Path]) -> Parts:
    """Parts of a command that began then, by the experiments that it ran; none without any.

    A run folder is made just before a measuring process is asked for, which says itself when its first pass
    began and its last one ended.
    """
    runs = [(born(path.parent), json.loads(path.read_text())) for path in records]
    if not runs:
        return {}
    intervals = sorted((asked, record["ended_at"]) for asked, record in runs)
    first, last = intervals[0][0], max(ended for _, ended in intervals)
    measuring: dict[str, float] = defaultdict(float)
    for asked, record in runs:
        for name, took in measured(asked, record):
            measuring[name] += took
    at_least_one = union(intervals)
    found = {
        "until the first measuring process is asked for": first - began,
        **measuring,
        "less what two measuring processes did at once": at_least_one - sum(measuring.values()),
        "from a last pass until the next process is asked for": last - first - at_least_one,
        "from the last pass to the end of the command": began + seconds - last,
    }
    number = f"{len(runs)} measuring process{'es' * (len(runs) > 1)}"
    return {f"the whole command, with {number}": found}


def born(path: Path) -> float:
    """When a folder was made, in seconds since the epoch; `os.stat` does not tell on Linux."""
    told = subprocess.run(["stat", "--format=%.3W", path], check=True, capture_output=True, text=True).stdout
    if not float(told):
        sys.exit(f"the file system of {path} keeps no times of birth: set TMPDIR to another one")
    return float(told)


def measured(asked: float, record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the parts of a measuring process, from when it was asked for to the end of its last pass."""
    seconds = {name: outcome["seconds"] or 0.0 for name, outcome in record["passes"].items()}
    before = record["started_at"] - asked
    yield "measuring: from there to the first pass", before
    for name, took in seconds.items():
        to_first_step = 0.0
        if name == "clean" and record["startup_s"] is not None:
            to_first_step = min(max(0.0, record["startup_s"] - before), took)
            yield "measuring: clean pass, to the first step", to_first_step
        yield f"measuring: {name} pass{', from then on' * (name == 'clean')}", took - to_first_step
    yield "measuring: between passes", record["ended_at"] - record["started_at"] - sum(seconds.values())


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in some interval; they are sorted."""
    seconds, reached = 0.0, float("-inf")
    for began, ended in intervals:
        seconds += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return seconds


def parts_of_samples(seconds: float, folder: Path) -> Parts:
    """What a command's driving process did, the largest part first, and what its other processes import."""
    found: Parts = {_DRIVING: {}}
    for path in sorted(folder.iterdir()):
        command, *lines = path.read_text().splitlines()
        kind = next((kind for mark, kind in _KINDS.items() if mark in f"{command} "), None)
        if kind is not None:
            parts = found.setdefault(kind, {})
            for line in lines:
                took, _, name = line.partition("\t")
                if name.startswith("imports" if kind != _DRIVING else ""):
                    parts[name] = parts.get(name, 0.0) + float(took)
    driving = found[_DRIVING]
    driving["Python's own start and end"] = seconds - sum(driving.values())
    return {kind: dict(sorted(parts.items(), key=lambda part: -part[1])) for kind, parts in found.items()}

"""Reads kept run folders with two checkouts of dpprof, and names every figure that differs.

    python scripts/compare_readings.py OLD_CHECKOUT NEW_CHECKOUT RUNS_DIR...

Each RUNS_DIR holds folders of sweeps, as `tests/written_by_0_3` does. Each checkout gets a copy of them and a
new SQLite store, and logs, shows, exports, compares and summarizes them. Compared are what MLflow then has of
every run (metrics with their series, params, tags, tables), what `show` prints, the exported values, and the
text of pages and reports. Ids, paths, clock times and dpprof's own version are left out. The exit code is 1
if anything differs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from difflib import SequenceMatcher
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

Readings = dict[str, str]
# What differs between any two checkouts, and between any two times.
TFEVENTS = r"tfevents[.\w]+"
VOLATILE = (
    r"[0-9a-f]{32}",
    TFEVENTS,
    r"dpprof[ -]\d[\w.+]*",
    r"schema-\w+",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?",
)
OWN_TAGS = ("mlflow.user", "dpprof.link_id", "mlflow.parentRunId", "mlflow.log-model.history")
SHOWN_LINES = 200


def main() -> int:
    """Print what differs, and count it."""
    old, new, *kept = (Path(argument).resolve() for argument in sys.argv[1:])
    if not kept:
        sys.exit(__doc__)
    before, after = ({} | read(checkout, kept) for checkout in (old, new))
    found = list(differences(before, after))
    for name, was, now in found[:SHOWN_LINES]:
        print(name, f"  old: {shown(was)}", f"  new: {shown(now)}", sep="\n")
    total = sum(len(value.splitlines()) for value in (before | after).values())
    print(f"{len(found)} of {total} readings differ")
    return bool(found)


def differences(before: Readings, after: Readings) -> Iterator[tuple[str, str | None, str | None]]:
    """What differs, line by line: its name, and what it was and is."""
    for name in sorted(before | after):
        was, now = ((one[name].splitlines() if name in one else []) for one in (before, after))
        for tag, i, j, k, n in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
            if tag != "equal":
                yield from ((name, *pair) for pair in zip_longest(was[i:j], now[k:n]))


def shown(value: str | None) -> str:
    """A value in a line of moderate length."""
    return "(absent)" if value is None else " ".join(value.split())[:300]


def read(checkout: Path, kept: list[Path]) -> Readings:
    """Everything that a checkout reads from copies of the folders."""
    found: Readings = {}
    for runs in kept:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(runs, folder / "runs")
            for link in folder.glob("runs/**/mlflow.json"):
                link.unlink()
            for key, value in read_folder(checkout, folder):
                found[f"{runs.name}: {key}"] = steady(value, folder, checkout)
    return found


def read_folder(checkout: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """The readings of one copy, each with a name."""

    def command(*arguments: str) -> Iterator[tuple[str, str]]:
        ended = dpprof(checkout, folder, *arguments)
        name = " ".join(arguments)
        yield f"{name}: exit code", str(ended.returncode)
        yield f"{name}: output", ended.stdout
        yield f"{name}: errors", ended.stderr

    sweeps = sorted(path.parent for path in folder.glob("runs/*/*/config.json"))
    for sweep in dict.fromkeys(run.parent for run in sweeps):
        place = f"runs/{sweep.name}"
        yield from command("log", place)
        yield from command("compare", place)
        for form in ("json", "csv"):
            yield from command("export", place, "--format", form)
        yield from command("roofline", place)
    for run in sweeps:
        yield from command("show", str(run.relative_to(folder)))
    yield from command("summarize", "--runs-dir", "runs", "--output", "results.json")
    yield from in_mlflow(folder)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith("mlruns"):
            continue
        if path.suffix == ".html":
            yield from page(name, path.read_text())
        elif path.suffix == ".md":
            yield name, path.read_text()
        elif path.name in ("summary.json", "results.json", "comparison.json"):
            yield from leaves(name, json.loads(path.read_text()))


def dpprof(checkout: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of a checkout in a folder, with a store of its own."""
    variables = os.environ | {
        "PYTHONPATH": str(checkout),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-m", "dpprof", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def in_mlflow(folder: Path) -> Iterator[tuple[str, str]]:
    """What the store has of every run: metrics by step, params, tags, the artifacts' names, and tables."""
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    for experiment in client.search_experiments():
        for key, value in experiment.tags.items():
            yield f"MLflow: {experiment.name}: tag {steady(key, folder, folder)}", value
        for run in client.search_runs([experiment.experiment_id]):
            name = f"MLflow: {run.data.tags.get('dpprof.run', run.info.run_name)}"
            yield f"{name}: status", f"{run.info.run_name} {run.info.status}"
            yield from ((f"{name}: param {key}", value) for key, value in run.data.params.items())
            for key in run.data.metrics:
                history = client.get_metric_history(run.info.run_id, key)
                yield f"{name}: metric {key}", str(sorted((point.step, point.value) for point in history))
            for key, value in run.data.tags.items():
                if key not in OWN_TAGS:
                    yield f"{name}: tag {key}", value
            yield from artifacts(client, run, name)


def artifacts(client: MlflowClient, run: Run, name: str, under: str = "") -> Iterator[tuple[str, str]]:
    """The names of a run's artifacts, and what its tables hold. Names of images are random."""
    for found in client.list_artifacts(run.info.run_id, under or None):
        if found.is_dir and found.path != "images":
            yield from artifacts(client, run, name, found.path)
        elif not found.is_dir:
            yield f"{name}: artifact {re.sub(TFEVENTS, '*', found.path)}", "is there"
            if found.path in ("cells.json", "operators.json", "kernels.json"):
                path = client.download_artifacts(run.info.run_id, found.path)
                yield from leaves(f"{name}: artifact {found.path}", json.loads(Path(path).read_text()))


class Words(HTMLParser):
    """The text of a page, without scripts and styles, and the data within its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.data: list[str] = []
        self._inside: str | None = None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Enter a script or a style."""
        if tag in ("script", "style"):
            self._inside = "data" if "json" in (dict(attrs).get("type") or "") else tag

    def handle_endtag(self, tag: str) -> None:
        """Leave it."""
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        """Keep text, and data."""
        if self._inside is None and data.strip():
            self.text.append(" ".join(data.split()))
        elif self._inside == "data":
            self.data.append(data)


def page(name: str, html: str) -> Iterator[tuple[str, str]]:
    """A page's pieces of text and its data."""
    words = Words(html)
    yield f"{name}: text", "\n".join(" ".join(text.split()) for text in words.text)
    yield f"{name}: data", "\n".join(" ".join(data.split()) for data in words.data)


def leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every number and word of a JSON document, named by its path."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(f"{name}.{key}", inner)
    else:
        yield name, repr(value)


def steady(text: str, folder: Path, checkout: Path) -> str:
    """A text without what is another one every time."""
    text = text.replace(str(folder), "FOLDER").replace(str(checkout), "CHECKOUT")
    for pattern in VOLATILE:
        text = re.sub(pattern, "*", text)
    return text


if __name__ == "__main__":
    sys.exit(main())

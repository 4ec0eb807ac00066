"""The files that a run leaves in its folder, at most eight: each result is there as soon as it is known.

`run.json` has the machine and how each stage ended; `memory.jsonl` and `steps.jsonl` have a line for each
experiment; `times.json` is the table of operator times; the rest are archives of run folders, and the tests'
output.
"""

import json
import tarfile
from pathlib import Path
from threading import Lock
from typing import Any


class Results:
    """The folder of one run. A second run in it goes on: what it has without an error is not done again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.times = path / "times.json"
        self.tests = path / "tests.txt"
        self._about = path / "run.json"
        self._lock = Lock()
        path.mkdir(parents=True, exist_ok=True)

    def about(self) -> dict[str, Any]:
        """Return the machine, the stages and the estimates' versions; empty if there is nothing yet."""
        return json.loads(self._about.read_text()) if self._about.exists() else {}

    def note(self, **values: Any) -> None:
        """Add values to those of `about`."""
        with self._lock:
            self._about.write_text(json.dumps(self.about() | values, indent=1))

    def rows(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the newest row of each experiment, by name; kind: `memory` or `steps`."""
        path = self.path / f"{kind}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {row["name"]: row for row in map(json.loads, lines)}

    def add(self, kind: str, row: dict[str, Any]) -> None:
        """Add an experiment's row."""
        with self._lock, (self.path / f"{kind}.jsonl").open("a") as file:
            print(json.dumps(row), file=file, flush=True)

    def is_known(self, kind: str, name: str) -> bool:
        """Tell whether an experiment has a row without an error."""
        row = self.rows(kind).get(name)
        return row is not None and "error" not in row

    def keep(self, name: str, folder: Path) -> None:
        """Write the archive of a folder anew, complete at any moment."""
        archive, part = self.path / f"{name}.tar.gz", self.path / f".{name}.part"
        with tarfile.open(part, "w:gz", compresslevel=6) as file:
            file.add(folder, arcname=name)
        part.replace(archive)

"""Many commands at once on one new store and one runs folder: has every one its own figures?

    python tests/faults/at_once.py [--counts 2,12] [--times 10] [--commands sweep,profile]

All start together and are given no name, on a SQLite file that nobody has made yet. Each trains with another
sequence length and, in turns, another precision, so that mixed figures show. Each must say where its folder
is, and that folder and its runs in MLflow must hold its own settings and the same figures, once, finished.
The peaks of memory must rise with the sequence length within a precision.

Prints Markdown. Exit code 1 if anything was wrong. A sweep takes about 8 seconds of processor time.
"""

import argparse
import json
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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

    index: int

    @property
    def seq_len(self) -> int:
        """Another one for each."""
        return 8 * (self.index + 1)

    @property
    def precision(self) -> str:
        """In turns."""
        return ("fp32", "bf16")[self.index % 2]

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
    everyone = [Given(index) for index in range(count)]
    runs = [Driven(folder, env, *given.arguments(command)) for given in everyone]
    try:
        for run in runs:
            run.wait()
    finally:
        for run in runs:
            run.end()
    pairs = list(zip(everyone, runs, strict=True))
    codes = [(run, run.process.returncode) for run in runs]
    found = [f"exit {code} ({last_line(run.output)})" for run, code in codes if code]
    stored = stored_runs(folder / "mlflow.db", _EXPERIMENT)
    expected = count * (2 if command == "sweep" else 1)
    if not found and len(stored) != expected:
        found.append(f"{len(stored)} runs in MLflow instead of {expected}")
    found += [f"{one.info.run_name} is not finished" for one in stored if one.info.status != "FINISHED"]
    peaks: dict[str, list[float]] = {}
    for given, run in pairs:
        if run.process.returncode:
            continue
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", default="2,12", help="how many at once, comma-separated")
    parser.add_argument("--times", type=int, default=10, help="how many times each")
    parser.add_argument("--commands", default="sweep,profile")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no command behind
    lines = ["| at once | times | all right | seen |", "| --- | ---: | ---: | --- |"]
    is_wrong = False
    for command in options.commands.split(","):
        for count in map(int, options.counts.split(",")):
            began, seen, right = time.monotonic(), set[str](), 0
            for _ in range(options.times):
                with tempfile.TemporaryDirectory(prefix="dpprof-at-once-") as folder:
                    wrong = together(Path(folder), command, count)
                print(f"{count} {command}: {'; '.join(wrong) or 'all right'}", file=sys.stderr, flush=True)
                right += not wrong
                is_wrong |= bool(wrong)
                seen.update(re.sub(r"[|\s]+", " ", what) for what in wrong[:2])
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
            lines.append(f"| {count} x `{command}` | {options.times} | {right} | {'; '.join(sorted(seen))} |")
    print("\n".join(lines))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Faults at every stage of a sweep: is anything lost, mixed or left running?

    python tests/faults/matrix.py [--only PATTERN] [--output docs/results/faults.md] [--workers 2]

Every row is a sweep of two tiny cells in a process of its own, which logs through a proxy to a real `mlflow
server` on SQLite. At one stage it meets one fault: a signal to the driver or to the measuring process, or a
store that is down, hangs, refuses, loses an answer, is killed or has no room. Then the store is healed, and
the sweep is resumed, or logged with `dpprof log` if all was measured. What must hold is in `after.py`:

- when the disturbed sweep has ended: no process left, no traceback, every finished pass's figures in the
  folder, and no run RUNNING where the driver could still close it;
- in the end: the same runs, metrics, params and artifacts in MLflow as an undisturbed sweep has, each once,
  all FINISHED, with the figures of the folder.

`--only` takes the rows whose name matches; `--list` prints the names. Prints Markdown, which `--output` also
keeps. Exit code 1 if anything did not hold. Takes about 25 seconds a row and worker on 2 idle cores.
"""

import argparse
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue

from bench import Bench, Outcome, open_bench
from disturbances import Row, all_rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="only rows whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--output", type=Path, help="a file for the table, beside standard output")
    parser.add_argument("--workers", type=int, default=1, help="rows at a time, each with its server")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no server behind
    rows = [row for row in all_rows() if re.search(options.only, row.name, re.I)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    began = time.monotonic()
    outcomes = try_all(rows, options.workers)
    text = table(outcomes, time.monotonic() - began)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return int(any(outcome.problems for outcome in outcomes))


def try_all(rows: Sequence[Row], workers: int) -> list[Outcome]:
    """The outcomes, in the order of the rows."""
    benches: SimpleQueue[Bench] = SimpleQueue()

    def one(row: Row) -> Outcome:
        bench = benches.get()
        try:
            outcome = bench.try_row(row)
        finally:
            benches.put(bench)
        print(f"{row.name}: {outcome.ended}; {said(outcome)}", file=sys.stderr, flush=True)
        return outcome

    pool = ThreadPoolExecutor(workers)
    try:
        with ExitStack() as stack:
            for _ in range(min(workers, len(rows))):
                benches.put(stack.enter_context(open_bench()))
            return list(pool.map(one, rows))
    finally:
        pool.shutdown(cancel_futures=True)


def said(outcome: Outcome) -> str:
    """What was seen, in a cell of the table."""
    return "; ".join(outcome.problems) or "all held"


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The page that is kept."""
    held = sum(not outcome.problems for outcome in outcomes)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "opacus", "mlflow"))
    lines = [
        "# Is anything lost, mixed or left running after a fault?",
        "",
        f"`python tests/faults/matrix.py`, {time.strftime('%Y-%m-%d')}: every row is a sweep of two tiny",
        "cells that meets one fault at one stage, and is then resumed or logged. No process may be left, no",
        "run RUNNING, no finished pass's figures lost. In the end MLflow has the same runs, metrics, params",
        "and artifacts as after an undisturbed sweep, each once.",
        "",
        f"{platform.system()}, Python {platform.python_version()}, {versions}, {os.cpu_count()} cores. "
        f"{seconds / 60:.0f} minutes.",
        "",
        f"**{held} of {len(outcomes)} rows held.**",
        "",
        "| fault | stage | the sweep | then | seen |",
        "| --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        row = outcome.row
        fault = row.fault if row.whom == "store" else f"{row.fault} of the {row.whom}"
        lines.append(f"| {fault} | {row.stage} | {outcome.ended} | {outcome.then} | {said(outcome)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

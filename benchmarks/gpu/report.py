"""Writes the page of a run on a GPU: what dpprof estimates and predicts beside what was measured.

    python benchmarks/gpu/report.py FOLDER > docs/results/gpu_NAME.md

FOLDER has the results of `run.py`. Times are predicted here, with the tables that come with dpprof and with
the run's own: a few minutes on two cores.
"""

import itertools
import json
import statistics
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from estimates import ESTIMATES
from experiments import Plan, plan_for
from results import Results
from step_times import times

from dpprof.config.counter_metrics import metric_names
from dpprof.config.device_times import DeviceTimes
from dpprof.drive.ncu.report import by_kernel, read_csv
from dpprof.record.figures.counters import StepCounters
from dpprof.record.figures.ledger import LedgerFigures
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table, number, signed
from dpprof.vocabulary.units import MIB

# Errors that are named at the end: of memory, in percent.
_MEMORY_PCT = 1.0
_AFTER = (3, 13)


def main() -> None:
    """Write the page to standard output."""
    results = Results(Path(sys.argv[1]).resolve())
    about = results.about()
    plan = plan_for(about["device"])
    missed: list[str] = []
    sections = (
        _opening(about),
        _memory(results, plan, missed),
        _smallest(results, plan),
        _calibration(results),
        times(results, plan, missed),
        _passes(results, plan),
        _problems(results, missed),
    )
    for line in itertools.chain.from_iterable(sections):
        print(line)


def _opening(about: dict[str, Any]) -> Iterator[str]:
    machine = about.get("machine", {})
    yield f"# dpprof held against {machine.get('gpu', machine.get('cpu', 'a machine'))}\n"
    yield "`python benchmarks/gpu/run.py FOLDER`, then `python benchmarks/gpu/report.py FOLDER`.\n"
    kept = about["estimated"]
    told = [f"Estimated beforehand on a CPU with torch {kept['torch']} for `--target {kept['target']}`."]
    told += [f"{name}: {value}." for name, value in machine.items() if name != "memory_gib"]
    yield " ".join(told) + "\n"
    rows = [[name, f"{one['seconds']:.0f}", one["why"] or "done"] for name, one in about["stages"].items()]
    yield markdown_table(["stage", "s", "how it ended"], rows, right=[1])


def _memory(results: Results, plan: Plan, missed: list[str]) -> Iterator[str]:
    yield "## Memory\n"
    yield "MiB of torch's allocator after so many steps: the most in blocks (`allocated`) within the step,"
    yield "and the most in segments (`reserved`) so far.\n"
    rows: list[list[str]] = []
    off: dict[str, list[float]] = {"allocated": [], "reserved": []}
    kept = json.loads(ESTIMATES.read_text())["rows"]
    for each in (each for each in plan.memory if each.share is None):
        row, estimate = results.rows("memory").get(each.name), kept.get(each.name, {})
        if row is None or "error" in row or "error" in estimate:
            continue
        cells = [each.name]
        for place, name in enumerate(("allocated", "reserved")):
            steps = [row["steps"][min(after, len(row["steps"])) - 1][place] for after in _AFTER]
            guess = estimate.get(name)
            cells += [_mib(value) for value in (*steps, guess)]
            error = 100 * (guess / steps[-1] - 1) if guess and steps[-1] else None
            cells.append(signed(error, 2))
            if error is not None:
                off[name].append(error)
                if abs(error) > _MEMORY_PCT:
                    missed.append(f"{each.name}: the estimate of {name} is off by {error:+.2f} %")
        rows.append(cells)
    columns = [
        f"{name} {what}" for name in off for what in (*(f"after {n}" for n in _AFTER), "estimated", "off %")
    ]
    yield markdown_table(["experiment", *columns], rows, right=1)
    for name, errors in off.items():
        if errors:
            within = sum(abs(error) <= _MEMORY_PCT for error in errors)
            yield (
                f"`{name}`: {within} of {len(errors)} estimates within {_MEMORY_PCT:g} %, median error "
                f"{statistics.median(map(abs, errors)):.2f} %, worst {max(errors, key=abs):+.2f} %.\n"
            )


def _mib(num_bytes: float | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / MIB:,.1f}"


def _smallest(results: Results, plan: Plan) -> Iterator[str]:
    known = results.rows("memory")
    rows: dict[str, list[str]] = {}
    for each in (each for each in plan.memory if each.share is not None and each.name in known):
        told = "runs" if "error" not in known[each.name] else known[each.name]["kind"]
        rows.setdefault(each.of_all, []).append(told)
    if not rows:
        return
    shares = list(dict.fromkeys(each.share for each in plan.memory if each.share is not None))
    yield "## The smallest device\n"
    yield "The process may take so many times the memory of the smallest device that is estimated to do.\n"
    cells = [[name, *told] for name, told in rows.items() if len(told) == len(shares)]
    yield markdown_table(["experiment", *(f"{share:.2f}" for share in shares)], cells)


def _calibration(results: Results) -> Iterator[str]:
    if not results.times.exists():
        return
    table = DeviceTimes.read(results.times)
    yield "## Times of operators\n"
    rates = ", ".join(f"{name} {rate:,.1f}" for name, rate in table.tflops.items())
    yield (
        f"`dpprof calibrate`: {rates} TFLOP/s, {table.gb_per_s:,.0f} GB/s, {table.launch_us:.1f} us for the "
        f"smallest operator, {table.issue_us:.1f} us to issue one.\n"
    )
    points = {(each.kind, each.dtype): len(each.points) for each in table.operators}
    types = list(dict.fromkeys(dtype for _, dtype in points))
    kinds = list(dict.fromkeys(kind for kind, _ in points))
    rows = [[kind, *(str(points.get((kind, dtype), "")) for dtype in types)] for kind in kinds]
    yield markdown_table(["kind, number of sizes", *types], rows, right=1)


def _passes(results: Results, plan: Plan) -> Iterator[str]:
    """Yield the ledger beside the allocator, and beside the hardware's counters."""
    rows: list[list[str]] = []
    counted: list[list[str]] = []
    for each in plan.full:
        archive = results.path / f"full_{each.trainer}.tar.gz"
        if not archive.exists():
            continue
        with TemporaryDirectory() as place:
            with tarfile.open(archive) as file:
                file.extractall(place, filter="data")
            for path in sorted(Path(place).glob("*/*/record.json")):
                folder = RunFolder(path.parent)
                record = folder.read_record()
                if record is not None:
                    rows.append([each.name, *_of_ledger(record)])
                    counted += _of_counters(each.name, folder, record)
    if rows:
        yield "## The ledger\n"
        yield "What the ledger does not explain of the allocator's peak, and how each pass ended.\n"
        yield markdown_table(["experiment", "peak, MiB", "unexplained %", "passes"], rows, right=[1, 2])
    if counted:
        yield "Bytes that Nsight Compute counted at the GPU's memory, beside those that operators ask for:\n"
        columns = ["experiment", "phase", "DRAM read, MiB", "written, MiB", "ledger, MiB", "DRAM / ledger"]
        yield markdown_table(columns, counted, right=range(2, 6))


def _of_ledger(record: Record) -> list[str]:
    found = LedgerFigures.of(record, record.ledger) if record.ledger else None
    ended = ", ".join(
        f"{name} {outcome.status}" + (f" ({outcome.reason})" if outcome.reason else "")
        for name, outcome in record.passes.items()
    )
    share = found.unexplained_pct if found else None
    return [_mib(record.memory.peak_allocated), signed(share, 2), ended]


def _of_counters(name: str, folder: RunFolder, record: Record) -> Iterator[list[str]]:
    for table in sorted(folder.counter_reports.glob("*.csv")):
        found = by_kernel(read_csv(table.read_text(), table.name), metric_names("basic"))
        moved = record.ledger.moved(by=lambda row: row.phase) if record.ledger else {}
        for phase, one in StepCounters.of(found, record.ledger).phases.items():
            ledger = moved[phase].num_bytes if phase in moved else None
            counts = [number(one.moved_mib(where)) for where in ("dram_read", "dram_written")]
            ratio = number(one.dram_to_ledger)
            yield [name, phase or "between phases", *counts, _mib(ledger), ratio]


def _problems(results: Results, missed: list[str]) -> Iterator[str]:
    yield "## What is not explained\n"
    for name, stage in results.about()["stages"].items():
        if stage["why"]:
            missed.append(f"the stage {name}: {' '.join(stage['why'].split())[:300]}")
    for kind in ("memory", "steps"):
        for name, row in results.rows(kind).items():
            if "error" in row and " at " not in name:
                missed.append(f"{name}: {row['kind']}: {' '.join(row['error'].split())[:200]}")
    yield from (f"- {one}." for one in missed or ["Nothing: every figure is within its limits"])
    if results.tests.exists():
        lines = results.tests.read_text(errors="replace").strip().splitlines()
        yield f"\n`pytest tests/gpu` on the same machine: {lines[-1] if lines else 'no output'}"


if __name__ == "__main__":
    main()

"""Reads a report printed by `ncu --import X.ncu-rep --csv --page raw`.

After a row of names and one of units comes one row per kernel launch. Lines from `==` on are ncu's messages.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dpprof.config.counter_metrics import BASIC, DURATION, canonical
from dpprof.drive.ncu.program import raise_known
from dpprof.errors import CountersError
from dpprof.record.counters import CounterResult, CounterRow, total
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.operator_classes import kernel_class
from dpprof.vocabulary.phases import phase_of

_KERNEL = "Kernel Name"
_RANGES = "Start/Stop_Range"
# How to convert a report into the format that this module reads.
EXPORT = "export it with: LC_ALL=C ncu --import REPORT --csv --page raw --print-units base"
# NVTX start/end ranges of a launch are quoted: `ID:DOMAIN:NAME`, then types and values of payload, colour and
# message; the message is the name again, or none.
_QUOTED = re.compile(r'"([^"]*)"')
_RANGE = re.compile(r"\d+:[^:]*:(?P<name>.+)(?::[^:]*){4}:(?:none:none|\w+:(?P=name))")
_METRIC = re.compile(r"[\w.]*__[\w.]+")
# Nsight Compute's prefixes are decimal: 1 Kbyte is 1000 bytes. Older releases print nsecond, newer ones ns.
_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_WORDS = r"([numKMGT]?)(byte|sector|second|s|inst|cycle|thread|warp|block|request|register|wavefront|hz)"
_UNIT = re.compile(rf"{_WORDS}(?:/{_WORDS})?")
_UNSCALED = ("", "%", "ratio")
# Units that dpprof's own figures must have, by a part of their names.
_EXPECTED = {"_time_": "second", "_bytes_": "byte", "_sectors_": "sector"}
_NOTHING = ("", "n/a", "nan", "-nan", "inf")


@dataclass(frozen=True)
class Launch:
    """Kernel launch: demangled name, NVTX start/end ranges (outermost first), metrics in base units."""

    kernel: str
    ranges: tuple[str, ...]
    values: dict[str, float]


def read_csv(text: str, name: str = "the report") -> list[Launch]:
    """Read the kernel launches of a report's raw page, in order; errors call it `name`.

    Leaves out metrics that are blank or n/a. Raises CountersError without launches, or if the text is
    ambiguous.
    """
    lines = _table(text, name)
    _, header = next(lines)
    if "Metric Name" in header:
        raise CountersError(f"{name} is Nsight Compute's details page, not its raw page: {EXPORT}")
    units_line, units = next(lines, (0, []))
    if len(units) != len(header) or units[header.index("ID")].strip():
        raise CountersError(f"{name} has no row of units below its header: {EXPORT}")
    columns = {column: index for index, column in enumerate(header) if _METRIC.fullmatch(column)}
    if DURATION not in columns:
        raise CountersError(f"{name} lacks {DURATION}, which every rate is taken over: count it too")
    scales = {column: _scale(column, units[index], name, units_line) for column, index in columns.items()}
    columns = {column: index for column, index in columns.items() if scales[column]}
    ranges = next((index for index, column in enumerate(header) if _RANGES in column), None)
    launches, devices = [], set()
    for number, row in lines:
        if len(row) != len(header):
            raise CountersError(
                f"line {number} of {name} has {len(row)} columns where its header has {len(header)}"
            )
        found = {
            canonical(column): value * scales[column]
            for column, index in columns.items()
            if (value := _number(row[index], column, name, number)) is not None
        }
        if DURATION not in found:
            raise CountersError(f"line {number} of {name} has no {DURATION}, which every rate is taken over")
        quoted = _QUOTED.findall(row[ranges]) if ranges is not None else ()
        around = tuple(match["name"] for text in quoted if (match := _RANGE.fullmatch(text)))
        devices.add(row[header.index("Device")] if "Device" in header else "")
        launches.append(Launch(row[header.index(_KERNEL)], around, found))
    if not launches:
        raise CountersError(f"{name} holds no kernel launch: nothing was counted")
    if len(devices) > 1:
        raise CountersError(f"{name} has kernels of {len(devices)} devices: profile one (ncu --devices 0)")
    return launches


def _table(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and cells from the header on, without the program's messages."""
    header_seen = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("==") or not line.strip():
            continue
        if not header_seen:
            if not line.startswith('"ID",') or f'"{_KERNEL}"' not in line:
                continue  # what the profiled program itself printed
            header_seen = True
        try:
            yield number, next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise CountersError(f"line {number} of {name} is no whole row of a table: {error}") from None
    if not header_seen:
        raise_known(text)
        raise CountersError(f"{name} holds no table of kernel launches: nothing was counted")


def _scale(column: str, unit: str, name: str, line: int) -> float:
    """Return the factor to the base unit; 0 if unknown. CountersError if dpprof's own figures need it."""
    unit = unit.strip()
    match = _UNIT.fullmatch(unit)
    expected = next((word for part, word in _EXPECTED.items() if part in canonical(column)), None)
    if canonical(column) in BASIC and expected and (match is None or not expected.startswith(match[2])):
        raise CountersError(
            f"line {line} of {name} gives {column} in {unit or 'no unit'!r}, where {expected}s are expected: "
            f"{EXPORT}"
        )
    if match is None:
        return 1.0 if unit in _UNSCALED else 0.0
    return _PREFIXES[match[1]] / (_PREFIXES[match[3]] if match[3] else 1.0)


def _number(text: str, column: str, name: str, line: int) -> float | None:
    """Parse a value, with or without commas between thousands; None for a blank or text."""
    text = text.strip()
    if text.lower() in _NOTHING:
        return None
    try:
        return float(text.replace(",", ""))
    except ValueError:
        if canonical(column) in BASIC:
            raise CountersError(
                f"line {line} of {name} gives {column} as {text!r}, which is no number: {EXPORT}"
            ) from None
        return None


def by_kernel(launches: Sequence[Launch], metrics: Iterable[str]) -> CounterResult:
    """Group launches by kernel and phase, longest first. Metrics that some lack are listed as missing."""
    wanted = [metric for metric in metrics if metric != DURATION]
    rows = []
    for launch in launches:
        phase, name = phase_within(launch.ranges), short_name(launch.kernel)
        values = {metric: launch.values[metric] for metric in wanted if metric in launch.values}
        rows.append(CounterRow(name, kernel_class(name, phase), phase, 1, launch.values[DURATION], values))
    groups = grouped(rows, lambda row: (row.name, row.kernel_class, row.phase))
    totals = [total(*key, of_group) for key, of_group in groups.items()]
    lacking = {metric: sum(metric not in launch.values for launch in launches) for metric in wanted}
    missing = {
        metric: f"missing for {count:,} of {len(launches):,} kernel launches"
        if count < len(launches)
        else "the report has none of it"
        for metric, count in lacking.items()
        if count
    }
    return CounterResult(sorted(totals, key=lambda row: -row.seconds), missing=missing)


def phase_within(ranges: Iterable[str]) -> str | None:
    """Return the phase of a launch: the innermost range around it that is a phase."""
    found = [phase for name in ranges if (phase := phase_of(name)) is not None]
    return found[-1] if found else None


@cache
def short_name(kernel: str) -> str:
    """Return a demangled name without its return type and parameters, which its template arguments imply."""
    name = kernel.removeprefix("void ")
    if not name.endswith(")"):
        return name
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        depth += (name[index] == ")") - (name[index] == "(")
        if depth == 0:
            return name[:index] or name
    return name

"""A comparison in the terminal: what lies behind the figures first, the verdict last."""

from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from dpprof.cli.cell_table import DISTURBED, FAILURES, cell_tables
from dpprof.cli.console import warn, write, write_point
from dpprof.cli.fitted_tables import table
from dpprof.reports.comparison.counter_ratios import EXPECTED, CounterRow
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.estimates import Pair
from dpprof.reports.comparison.findings.estimated import Estimated
from dpprof.reports.comparison.findings.extra import Extra
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.findings.saving import Savings
from dpprof.reports.comparison.markdown import percent
from dpprof.reports.comparison.marks import WORDS
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import trainer_info

# Findings that explain figures; all others are the verdict.
_EXPLAINING = (Estimated, Extra, Savings)


def print_comparison(console: Console, data: ComparisonData) -> None:
    """What a comparison says. The verdict ends it, the advice last, so that it is still on the screen."""
    if data.comparison.steps:
        console.print()
        write(console, data.comparison.steps)
    for found in data.findings:
        if isinstance(found.data, _EXPLAINING):
            _print_finding(console, found)
    for part in [*cell_tables(data, console), *_further_tables(data)]:
        console.print()
        console.print(part)
    for said in data.judgement:
        write_point(console, said)
    console.print()
    for line in _legend(data):
        write(console, Text(line, "dim"))
    if data.failed:
        console.print()
    for failed in data.failed:
        what = FAILURES.get(failed.failure, failed.failure)
        why = failed.reason.rstrip(": ")
        write(console, Text.assemble((what, "red"), f" in {failed.name}", f": {why}" if why else ""))
    if data.doubts:
        console.print()
    for doubt in data.doubts:
        warn(console, doubt)
    for found in reversed(data.findings):
        if not isinstance(found.data, _EXPLAINING):
            _print_finding(console, found)


def _print_finding(console: Console, found: Finding[object]) -> None:
    console.print()
    write(console, Text.assemble((f"{found.topic}. ", "bold"), found.text))
    for point in found.points:
        write_point(console, point)


def _legend(data: ComparisonData) -> Iterator[str]:
    """What the short words of the tables mean."""
    cells = data.comparison.cells
    shorts = {trainer_info(cell.trainer).short_name: cell.trainer for cell in cells}
    yield ", ".join(f"{short} is {full}" for short, full in shorts.items() if short != full) + "."
    yield (
        "step: median of the clean pass ± half its interquartile range. peak: the most memory that torch's "
        "allocator handed out within a step. x: the ratio to standard. 1 MiB = 2^20 bytes."
    )
    if any(len(place) > 2 for place in data.comparison.places):
        words = ", ".join(word for pair in WORDS.values() for word in pair)
        yield f"{words}: among the DP trainers at one place, where nothing else comes close."
    if any(cell.is_disturbed for cell in cells):
        yield (
            f"{DISTURBED}: timed while other processes used the processors or the machine's pace changed. "
            "Such times, and their ratios, do not show how trainers differ."
        )


def _further_tables(data: ComparisonData) -> Iterator[RenderableType]:
    by_place: dict[tuple[str, str], list[CounterRow]] = {}
    for row in data.counters:
        by_place.setdefault((row.model, row.place), []).append(row)
    for (model, place), rows in by_place.items():
        yield _counters(f"Hardware counters of one step, {model}, {place}", rows)
    if data.pairs:
        yield _estimated(data.pairs)


def _counters(title: str, rows: list[CounterRow]) -> RenderableType:
    """Bytes by level of the memory for each trainer at a place."""
    columns: list[tuple[str, Callable[..., str]]] = [("", str), ("kernel ms", number)]
    for expected in EXPECTED.values():
        columns += [(f"{expected.name} MiB", number), ("x", number)]
    return table(
        title,
        [*columns, ("DRAM / ledger", number)],
        [
            (
                trainer_info(row.trainer).short_name,
                row.kernel_ms,
                *(value for moved in row.moved for value in (moved.mib, moved.ratio)),
                row.dram_to_ledger,
            )
            for row in rows
        ],
    )


def _estimated(pairs: list[Pair]) -> RenderableType:
    """Estimates beside the measurements of the same experiments."""
    columns: list[tuple[str, Callable[..., str]]] = [
        ("run", str),
        ("ledger's peak MiB", number),
        ("estimated", number),
        ("off %", percent),
    ]
    columns += [("allocator's peak MiB", number), ("estimated", number), ("off %", percent)]
    columns += [("step ms", number), ("x the floor", number)]
    rows = [
        (
            pair.name,
            *(pair.ledger_mib, pair.estimated_mib, pair.ledger_off_pct),
            *(pair.allocator_mib, pair.estimated_allocator_mib, pair.allocator_off_pct),
            *(pair.step_ms, pair.to_floor),
        )
        for pair in pairs
    ]
    return table("Estimate and measurement", columns, rows)

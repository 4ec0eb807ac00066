"""`dpprof compare`: compare runs with each other and with a baseline."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpprof.cli.options import STANDARD_OUTPUT, as_number, output_option, write_output
from dpprof.cli.streams import complain, waiting
from dpprof.errors import Regression, refuse
from dpprof.vocabulary.formats import fixed, signed

if TYPE_CHECKING:
    from rich.console import Console

    from dpprof.findings.comparison.comparison import Comparison
    from dpprof.findings.comparison.data import ComparisonData
    from dpprof.findings.comparison.regression import Check, FigureChange


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@output_option("Where to write the page;", default="comparison.html")
@click.option(
    "--baseline", metavar="SOURCE", help="What to compare the sources with, to report what got worse."
)
@click.option(
    "--fail-above",
    default="5%",
    show_default=True,
    metavar="PERCENT",
    help="How much a peak or a step time may grow over the baseline's.",
)
def compare(sources: tuple[str, ...], output: str, baseline: str | None, fail_above: str) -> None:
    """Set runs side by side.

    A SOURCE is a sweep folder, a run folder, a file of `dpprof export --format json`, or the name or id of a
    sweep or a run in MLflow. Prints what the figures say and writes it all as one page.

    With --baseline it also reports what got worse, and then exits with code 4. Peaks are compared exactly.
    A step time is worse only if it grew beyond the limit with 95 % confidence. Measure both sides with
    `dpprof sweep --repeats 3 --passes clean,pace,memory`: only repeated runs show what differs from process
    to process, and the pace pass tells a slow machine from slow code.

    \b
    dpprof compare runs/sweep-20260101-120000
    dpprof compare sweep-20260101-120000 runs/other/DPSGDTrainer_tiny_bs2_seq256
    dpprof compare runs/now --baseline baseline.json --fail-above 5%
    """
    limit = as_number(fail_above.strip().removesuffix("%"))
    if not limit >= 0:
        raise refuse("fail_above", fail_above, "a percentage of at least 0, as 5%")
    data, before = _read(sources, output, baseline)

    from dpprof.cli.console import open_console
    from dpprof.findings.comparison import regression
    from dpprof.pages.comparison.summary import view
    from dpprof.pages.terminal import show, write

    console = open_console(stderr=output == STANDARD_OUTPUT)
    show(console, view(data))
    if output != STANDARD_OUTPUT:
        console.print()
        write(console, f"the page with all of it: {output}")
    if before is None:
        return
    checked = regression.check(data.comparison, before, limit)
    print_check(console, checked, before.name)
    worse = dict.fromkeys(change.cell for change in checked.worse)
    if worse:
        total = len({change.cell for change in checked.changes})
        raise Regression(
            f"{len(worse)} of {total} cells got worse than {before.name} by more than {limit:g} %: "
            f"{', '.join(worse)}"
        )


def _read(
    sources: tuple[str, ...], output: str, baseline: str | None
) -> "tuple[ComparisonData, Comparison | None]":
    """Read sources and baseline, and write the page."""
    with waiting("reading the runs"), tempfile.TemporaryDirectory() as scratch:
        from dpprof.drive.sources import read_comparison
        from dpprof.findings.comparison.comparison import foreseen_of
        from dpprof.findings.comparison.data import compute
        from dpprof.pages.comparison import page

        comparison, _ = read_comparison(sources, Path(scratch), warn)
        before = None
        if baseline is not None:
            before, _ = read_comparison([baseline], Path(scratch) / "baseline", warn, "baseline")
        data = compute(comparison, foreseen_of(sources, warn))
        write_output(output, page.render(data))
    return data, before


def warn(text: str) -> None:
    """Print a warning."""
    complain(f"warning: {text}")


def print_check(console: "Console", checked: "Check", baseline: str) -> None:
    """Print the changes since the baseline, regressions first."""
    from dpprof.cli.console import warn
    from dpprof.pages.document import Columns, figure
    from dpprof.pages.terminal import table, write

    console.print()
    title = f"Against {baseline}, worse if more than {checked.fail_above_pct:g} % above it"
    columns: Columns = [
        ("cell", str),
        ("figure", str),
        ("before", figure),
        ("now", figure),
        ("change", figure),
        ("90 % interval", str),
        ("", str),
    ]
    changes = sorted(checked.changes, key=lambda change: not change.is_worse)
    notes = list(dict.fromkeys(change.note for change in changes if change.note))
    console.print(table(title, columns, [cells(change, notes) for change in changes]))
    for number, note in enumerate(notes, start=1):
        write(console, f"[{number}] {note}")
    for text in checked.unmatched:
        write(console, f"not compared: {text}")
    for text in checked.doubts:
        warn(console, f"the two sides differ in {text}")
    if not checked.worse:
        unjudged = sum("not judged" in change.note for change in checked.changes)
        but = f"; {unjudged} of {len(checked.changes)} figures were not judged" if unjudged else ""
        write(console, f"nothing got worse{but}")


def cells(change: "FigureChange", notes: list[str]) -> tuple[str, ...]:
    """Return a change as the texts of a table row; notes are shown by number."""
    from dpprof.cli.console import short_run_name

    figures = ["" if v is None else f"{fixed(v, 2)} {change.unit}" for v in (change.before, change.now)]
    grown = "" if change.percent is None else f"{signed(change.percent, 2)} %"
    interval = "" if change.interval is None else f"{' to '.join(map(signed, change.interval))} %"
    marks = ["WORSE"] if change.is_worse else []
    marks += [f"[{1 + notes.index(change.note)}]"] if change.note else []
    return (short_run_name(change.cell), change.what, *figures, grown, interval, " ".join(marks))

"""`dpprof roofline`: how near each phase comes to what its machine reaches at best."""

from typing import TYPE_CHECKING

import click

from dpprof.cli.options import STANDARD_OUTPUT, output_option, write_output

if TYPE_CHECKING:
    from rich.console import Console

    from dpprof.reports.roofline.page import RooflineData


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--copy-gib-per-s",
    metavar="FLOAT",
    help="GiB per second that a large copy reads and writes, in place of what was measured.",
)
@click.option(
    "--matmul-tflop-per-s",
    metavar="FLOAT",
    help="TFLOP per second of a large matrix product, in place of what was measured.",
)
@output_option("Where to write the page;", default="roofline.html")
def roofline(
    sources: tuple[str, ...], copy_gib_per_s: str | None, matmul_tflop_per_s: str | None, output: str
) -> None:
    """Compare runs with their machine's limits.

    A SOURCE is a sweep folder, a run folder, a file of `dpprof export --format json`, or the name or id of a
    sweep or a run in MLflow. Prints for every phase how many bytes and FLOPs per second it reaches, and
    draws the roofline as one page.

    Bytes and times are those of hardware counters where a run has them (--counters auto), else the bytes
    that the ledger records and the time of the clean pass. The ceilings pass measures the
    ceilings; set them here to compare runs with a data sheet.

    \b
    dpprof sweep --passes clean,ledger,ceilings --sweep-name roof
    dpprof roofline runs/roof
    dpprof roofline runs/roof --copy-gib-per-s 4000 --matmul-tflop-per-s 50
    """
    import tempfile
    from pathlib import Path

    from dpprof.cli.compare import warn
    from dpprof.cli.waiting import waiting
    from dpprof.errors import ConfigError
    from dpprof.vocabulary.units import GIB

    copy = above_zero("copy_gib_per_s", copy_gib_per_s)
    matmul = above_zero("matmul_tflop_per_s", matmul_tflop_per_s)
    with waiting("reading the runs"), tempfile.TemporaryDirectory() as scratch:
        from dpprof.cli.console import open_console, write
        from dpprof.drive.sources import read_comparison
        from dpprof.reports.roofline import data, page
        from dpprof.reports.roofline.roofs import Given
        from dpprof.reports.roofline.write import read_counters

        given = Given(copy and copy * GIB, matmul and matmul * 1e12)
        comparison, folders = read_comparison(sources, Path(scratch), warn)
        only = next(iter(folders.values())) if len(folders) == len(comparison.cells) == 1 else None
        made = page.compute(data.compute(comparison, given), read_counters(only) if only else None)
    if not made.roofline.sections and made.counters is None:
        raise ConfigError(
            f"SOURCE: got {', '.join(sources)}, allowed: runs that were measured with a ledger "
            "(passes=clean,ledger,ceilings) or with hardware counters (counters=auto)"
        )
    write_output(output, page.render(made))
    console = open_console(stderr=output == STANDARD_OUTPUT)
    print_roofline(console, made)
    if output != STANDARD_OUTPUT:
        console.print()
        write(console, f"the page with all of it: {output}")


def above_zero(name: str, text: str | None) -> float | None:
    """An option's text as a number. Raises ConfigError."""
    import math

    from dpprof.settings import refuse

    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise refuse(name, text, "a number above 0")
    return value


def print_roofline(console: "Console", page: "RooflineData") -> None:
    """The ceilings, a table of phases for every run, and what is doubtful about them."""
    from rich.text import Text

    from dpprof.cli.console import warn, write
    from dpprof.cli.fitted_tables import right, table
    from dpprof.reports.roofline.texts import COLUMNS, NO_CEILINGS, ceilings, cells

    found = page.roofline
    for section in found.sections:
        shown = [(name, right if is_number else str) for name, is_number in COLUMNS.items()]
        rows, title = [tuple(cells(row)) for row in section.rows], section.title
        origins = {row[-1] for row in rows}
        if len(origins) == 1:  # what all rows share needs no column
            title += f" ({shown.pop()[0]}: {origins.pop()})"
            rows = [row[:-1] for row in rows]
        console.print()
        console.print(table(title, shown, rows))
    console.print()
    if found.has_ceilings:
        for roof in found.roofs:
            write(console, Text.assemble(("ceilings ", "bold"), ceilings(roof)))
    elif found.sections:
        write(console, NO_CEILINGS)
    for reason in found.left_out:
        write(console, reason)
    for doubt in page.doubts:
        warn(console, doubt)

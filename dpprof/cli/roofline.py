"""`dpprof roofline`: compare each phase with the best rates of its machine."""

import tempfile
from pathlib import Path

import click

from dpprof.cli.compare import warn
from dpprof.cli.options import STANDARD_OUTPUT, as_number, output_option, write_output
from dpprof.cli.streams import waiting
from dpprof.errors import ConfigError, refuse
from dpprof.vocabulary.units import GIB


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

    Bytes and times are those of hardware counters where a run has them (--counters auto), else the ledger's
    bytes and the clean pass's time. The ceilings pass measures ceilings; set them here from a data sheet.

    \b
    dpprof sweep --passes clean,ledger,ceilings --sweep-name roof
    dpprof roofline runs/roof
    dpprof roofline runs/roof --copy-gib-per-s 4000 --matmul-tflop-per-s 50
    """
    copy = above_zero("copy_gib_per_s", copy_gib_per_s)
    matmul = above_zero("matmul_tflop_per_s", matmul_tflop_per_s)
    with waiting("reading the runs"), tempfile.TemporaryDirectory() as scratch:
        from dpprof.cli.console import open_console
        from dpprof.drive.sources import read_comparison
        from dpprof.findings.roofline import compute
        from dpprof.pages import html, terminal
        from dpprof.pages.reports.roofline import counters_of, page

        comparison, folders = read_comparison(sources, Path(scratch), warn)
        only = list(folders.values()) if len(folders) == len(comparison.cells) == 1 else []
        counters = counters_of(only[0].read_record()) if only else None
    found = compute(comparison, copy and copy * GIB, matmul and matmul * 1e12)
    if not found.sections and counters is None:
        raise ConfigError(
            f"SOURCE: got {', '.join(sources)}, allowed: runs that were measured with a ledger "
            "(passes=clean,ledger) or with hardware counters (counters=auto)"
        )
    document = page(found, counters)
    write_output(output, html.page(document))
    console = open_console(stderr=output == STANDARD_OUTPUT)
    terminal.show(console, document)
    if output != STANDARD_OUTPUT:
        terminal.write(console, f"\nthe page with all of it: {output}")


def above_zero(name: str, text: str | None) -> float | None:
    """Convert an option's text to a number. Raises ConfigError."""
    if text is not None and not as_number(text) > 0:
        raise refuse(name, text, "a number above 0")
    return None if text is None else as_number(text)

"""`dpprof summarize`: summarize sweeps from their run folders alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpprof.cli.options import STANDARD_OUTPUT, output_option, write_output
from dpprof.cli.streams import complain, put, waiting
from dpprof.errors import refuse

if TYPE_CHECKING:
    from dpprof.findings.comparison.comparison import Comparison

_FORMATS = ("table", "markdown")


@click.command()
@click.argument("folder", required=False)
@click.option("--runs-dir", "--runs_dir", metavar="FOLDER", help="The same as FOLDER.")
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    metavar="|".join(_FORMATS),
    help="Tables to look at, or the Markdown of summary.md.",
)
@output_option("Write the summaries there as JSON too;")
def summarize(folder: str | None, runs_dir: str | None, form: str, output: str | None) -> None:
    """Summarize run folders.

    Prints the summary of FOLDER if it is a sweep, otherwise of every sweep in it. Without FOLDER it reads
    runs. Needs neither MLflow nor a GPU.

    \b
    dpprof summarize runs/sweep-20260101-120000
    dpprof summarize runs --output results.json
    """
    if form not in _FORMATS:
        raise refuse("format", form, ", ".join(_FORMATS))
    if folder is not None and runs_dir is not None:
        raise refuse("runs_dir", runs_dir, "nothing beside FOLDER, which says the same")
    root = Path(folder or runs_dir or "runs")
    if not root.is_dir():
        raise refuse("runs_dir", str(root), "a folder that exists")
    with waiting("reading the runs"):
        from rich.text import Text

        from dpprof.cli.console import open_console
        from dpprof.findings.comparison.data import compute
        from dpprof.pages.comparison.summary import to_markdown, view
        from dpprof.pages.terminal import show

        comparisons = _read(root)
        found = [compute(comparison, foreseen) for comparison, foreseen in comparisons]
    if not found:
        raise refuse("runs_dir", str(root), "a folder with run folders in it")
    console = open_console(stderr=output == STANDARD_OUTPUT)
    for data in found:
        if form == "markdown":
            say = complain if output == STANDARD_OUTPUT else put
            say(f"{to_markdown(data)}\n")
            continue
        console.rule(Text(data.comparison.name), align="left")
        show(console, view(data))
        console.print()
    if output:
        write_output(output, json.dumps([json.loads(one.to_json()) for one, _ in comparisons], indent=1))


def _read(root: Path) -> "list[tuple[Comparison, Comparison | None]]":
    """Read the folder and its subfolders as sweeps, each with its estimates; warns of unreadable ones."""
    from dpprof.findings.comparison.comparison import compare, foreseen_of
    from dpprof.record.figures.results import read_results
    from dpprof.record.folder import SweepFolder

    found = []
    inside = {path for path in root.iterdir() if path.is_dir()} - {SweepFolder(root).foreseen.path}
    for path in [root, *sorted(inside)]:
        folder = SweepFolder(path)
        results, damaged = read_results((run.name, run) for run in folder.runs())
        for text in damaged:
            complain(f"warning: left out {text}")
        foreseen = foreseen_of([path], lambda text: complain(f"warning: {text}"))
        if results:
            found.append((compare(folder.name, {folder.name: results}), foreseen))
    return found

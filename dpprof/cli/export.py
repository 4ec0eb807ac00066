"""`dpprof export`: export runs as a table, or one run's memory, for other programs."""

import gzip
import tempfile
from pathlib import Path

import click

from dpprof.cli.compare import warn
from dpprof.cli.options import STANDARD_OUTPUT, output_option, write_output
from dpprof.cli.streams import put, waiting
from dpprof.errors import ConfigError, refuse

_BINARY = "snapshot"


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--format",
    "form",
    default="csv",
    show_default=True,
    metavar="NAME",
    help="Of runs: csv, json, markdown. Of one run's memory: snapshot, perfetto, collapsed.",
)
@output_option("Write it there instead of printing it; compressed if FILE ends in .gz. A snapshot needs it;")
def export(sources: tuple[str, ...], form: str, output: str | None) -> None:
    """Export runs, or one run's memory, for other programs.

    A SOURCE is a sweep folder, a run folder, or the name or id of a sweep or a run in MLflow.

    \b
    Of runs, as a table:
      csv         a row for each run: its settings, and all figures by metric name
      json        what `dpprof compare --baseline` reads
      markdown    the summary
    Of one run, measured or estimated, the memory of a step:
      snapshot    a memory snapshot for https://pytorch.org/memory_viz:
                  every allocation over time, with category, module and operator
      perfetto    bytes by category over time for https://ui.perfetto.dev,
                  with the operators if the run folder has a trace
      collapsed   what is alive at the peak, by category and module, for
                  https://www.speedscope.app and flamegraph.pl

    A finished run has the last three as files in its folder, and in MLflow as artifacts.

    \b
    dpprof export runs/sweep-20260101-120000 --format csv --output figures.csv
    dpprof export sweep-20260101-120000 --format json --output baseline.json
    dpprof export runs/<sweep>/<run> --format snapshot --output memory.pickle
    dpprof export runs/<sweep>/<run> --format collapsed | flamegraph.pl > peak.svg
    """
    if form == _BINARY and output is None:
        raise ConfigError(f"output: not given, allowed with format={form}: a file, e.g. memory.pickle")
    with waiting("exporting"), tempfile.TemporaryDirectory() as scratch:
        content = _exported(sources, form, Path(scratch))
    if output is None or output == STANDARD_OUTPUT:
        put(content if form == _BINARY else content.decode())
        return
    write_output(output, gzip.compress(content, mtime=0) if output.endswith(".gz") else content)


def _exported(sources: tuple[str, ...], form: str, scratch: Path) -> bytes:
    from dpprof.drive.sources import read_comparison
    from dpprof.findings.comparison.comparison import foreseen_of
    from dpprof.pages.comparison import export as of_runs
    from dpprof.pages.reports import formats as of_one
    from dpprof.record.figures.results import read_result

    if form not in (*of_runs.FORMATS, *of_one.FORMATS):
        raise refuse("format", form, ", ".join((*of_runs.FORMATS, *of_one.FORMATS)))
    comparison, folders = read_comparison(sources, scratch, warn)
    if form in of_runs.FORMATS:
        return of_runs.export(comparison, form, foreseen_of(sources, warn)).encode()
    given = f"SOURCE: got {', '.join(sources)}"
    if not folders:
        raise ConfigError(f"{given}, allowed with format={form}: a run folder or a run in MLflow, not a file")
    if len(folders) > 1:
        names = sorted(name for _, name in folders)
        raise ConfigError(
            f"{given}, which holds {len(folders)} runs, allowed with format={form}: one run, by its folder "
            f"or its name in MLflow, e.g. {names[0]}"
        )
    ((_, name), folder) = next(iter(folders.items()))
    return of_one.export(read_result(folder, name), form)

"""`dpprof export`: runs as a table for other programs."""

import click


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--format", "form", default="csv", show_default=True, help="One of: csv, json, markdown.")
@click.option("--output", metavar="FILE", help="Write it there instead of printing it.")
def export(sources: tuple[str, ...], form: str, output: str | None) -> None:
    """Export runs as a table.

    A SOURCE is a sweep folder, a run folder, or the name or id of a sweep or a run in MLflow. csv has a row
    for each run with its settings and every figure under its metric name; markdown is the summary; json is
    what `dpprof compare --baseline` reads.

    \b
    dpprof export runs/sweep-20260101-120000 --format csv --output figures.csv
    dpprof export sweep-20260101-120000 --format json --output baseline.json
    """
    import tempfile
    from pathlib import Path

    from dpprof.cli.compare import warn
    from dpprof.cli.options import write_output
    from dpprof.config.settings import refuse
    from dpprof.drive.sources import read_comparison
    from dpprof.reports.comparison import export as exporting

    if form not in exporting.FORMATS:
        raise refuse("format", form, ", ".join(exporting.FORMATS))
    with tempfile.TemporaryDirectory() as scratch:
        comparison, _ = read_comparison(sources, Path(scratch), warn)
        text = exporting.export(comparison, form)
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text)

"""`dpprof summarize`: rebuild the summary of every sweep from run folders alone."""

import click


@click.command()
@click.option(
    "--runs-dir", "--runs_dir", default="runs", show_default=True, help="Folder of sweeps, or one sweep."
)
@click.option("--output", default=None, metavar="FILE", help="Write the summaries there as JSON too.")
def summarize(runs_dir: str, output: str | None) -> None:
    """Summarize run folders.

    Prints the summary of every sweep under a folder. Needs neither MLflow nor a GPU.

    \b
    dpprof summarize --runs-dir runs --output results.json
    """
    import json
    from pathlib import Path

    from dpprof.cli.options import write_output
    from dpprof.errors import ConfigError, DpprofError
    from dpprof.figures.results import read_result
    from dpprof.record.folder import SweepFolder
    from dpprof.reports.comparison.comparison import compare
    from dpprof.reports.comparison.data import compute
    from dpprof.reports.comparison.markdown import to_markdown

    root = Path(runs_dir)
    if not root.is_dir():
        raise ConfigError(f"runs_dir: got {runs_dir!r}, allowed: a folder that exists")
    summaries = []
    for folder in [
        SweepFolder(root),
        *(SweepFolder(path) for path in sorted(root.iterdir()) if path.is_dir()),
    ]:
        results = []
        for run in folder.runs():
            try:
                results.append(read_result(run))
            except DpprofError as error:
                click.echo(f"warning: left out {run.path}: {error}", err=True)
        if results:
            summaries.append(compare(folder.name, {folder.name: results}))
            click.echo(to_markdown(compute(summaries[-1])))
    if not summaries:
        raise ConfigError(f"runs_dir: got {runs_dir!r}, allowed: a folder with run folders in it")
    if output:
        write_output(output, json.dumps([json.loads(summary.to_json()) for summary in summaries], indent=1))

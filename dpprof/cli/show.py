"""`dpprof show`: show the ledger and the hardware counters of one experiment."""

from pathlib import Path

import click

from dpprof.errors import ConfigError


@click.command()
@click.argument("run_folder", type=click.Path())
@click.option("--tensors", default=10, show_default=True, help="How many of the largest tensors to list.")
@click.option(
    "--kernels", default=10, show_default=True, help="How many of the kernels with the most traffic to list."
)
def show(run_folder: str, tensors: int, kernels: int) -> None:
    """Show one experiment's memory and traffic.

    Prints what fills the memory at the peak of a training step, the largest tensors there, and the bytes
    that each phase moves; of a run with hardware counters (--counters auto) also what they counted; of one
    with several ranks how each of them did; of one with --plan what the plan said; which parameters train;
    and, if --dataset-size was given, the privacy of the whole training. Needs neither MLflow nor a GPU.

    \b
    dpprof show runs/<sweep>/<run>
    """
    from dpprof.cli.console import open_console
    from dpprof.pages import run_tables, terminal
    from dpprof.record.figures.results import read_result
    from dpprof.record.folder import RunFolder

    for name, value in (("tensors", tensors), ("kernels", kernels)):
        if value < 0:
            raise ConfigError(f"{name}: got {value}, allowed: 0 or more")
    if not Path(run_folder).is_dir():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a run folder that exists")
    folder = RunFolder(run_folder)
    if not folder.config.exists():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a folder with a config.json in it")
    result = read_result(folder)
    page = run_tables.page(result, folder.read_timeline(), tensors, kernels)
    if page is None:
        failed = result.record.failed_passes if result.record else {}
        why = result.failure.message if result.failure else failed.get("ledger")
        reason = f"it failed: {why}" if why else "its ledger pass did not run (passes=...)"
        raise ConfigError(f"run_folder: {run_folder} has no ledger to show; {reason}")
    terminal.show(open_console(), page)

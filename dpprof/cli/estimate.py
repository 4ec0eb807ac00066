"""`dpprof estimate`: what a grid of experiments would need, computed on fake tensors."""

from collections.abc import Callable
from functools import partial

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split


@click.command(cls=GroupedOptions)
@options_of("estimate")
def estimate(**options: str | None) -> None:
    """Estimate a grid of experiments without running it.

    The training step of every experiment runs on fake tensors, which have shapes and no data: nothing is
    allocated, and no GPU is needed. Gives the peak memory by category and phase, the bytes moved and the
    FLOPs, whether it fits a device, and the least time that a step can take there.

    \b
    dpprof estimate --target H100   # the default grid: 1b, all trainers
    dpprof estimate --model-sizes medium --seq-lens 1024 --device-memory-gib 24
    dpprof estimate --device cpu --model-sizes small --trainers flat,ghost
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What runs the estimates, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.drive import WorkersConfig
    from dpprof.config.estimating import ESTIMATE, EstimatingConfig
    from dpprof.config.flat import parse_drive
    from dpprof.config.grid import build_grid
    from dpprof.drive.jobs import at_a_time
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.workload_module import refuse_missing_module
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    own_values, values = split(values, WorkersConfig)
    own = parse_all(WorkersConfig, own_values)
    launcher = make_launcher(drive)
    grid = build_grid(
        values,
        EstimatingConfig,
        cuda_available=lambda: True,
        look_for=partial(refuse_missing_module, launcher=launcher),
    )
    drive.check_writable()

    from dpprof.cli.console import counted
    from dpprof.cli.grid_run import run_grid
    from dpprof.drive.sweep import Sweep

    workers = at_a_time(launcher, next(iter(grid.experiments.values())), own.workers)
    planned = Sweep(grid.config.sweep_name, drive, launcher, grid.experiments, workers=workers)
    what = counted(len(grid.experiments), "experiment")
    opening = f"{what} on fake tensors, {workers} at a time"
    return partial(
        run_grid, planned, ESTIMATE, opening, "estimated", resume=grid.config.resume, is_timed=False
    )

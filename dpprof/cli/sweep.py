"""`dpprof sweep`: measure a grid of experiments."""

from collections.abc import Callable
from functools import partial

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of


@click.command(cls=GroupedOptions)
@options_of("sweep")
def sweep(**options: str | None) -> None:
    """Measure a grid of experiments.

    Trainers x batch sizes x sequence lengths x model sizes x precisions, one clean process each. On a CPU the
    default sweep also estimates the 1b model on an H100, for its advice.

    \b
    dpprof sweep
    dpprof sweep --trainers flat,ghost --batch-sizes 2,4,8 --seq-lens 256
    dpprof sweep --config scripts/profiling_config.json
    dpprof sweep --sweep-name mine --resume true     # go on with an earlier one
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(values: dict[str, object]) -> Callable[[], None]:
    """What runs the sweep, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.flat import parse_drive
    from dpprof.config.grid import build_grid
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.workload_module import refuse_missing_module

    drive, grid_values = parse_drive(values)
    launcher = make_launcher(drive)
    grid = build_grid(
        grid_values,
        cuda_available=launcher.machine.cuda_available,
        look_for=partial(refuse_missing_module, launcher=launcher),
    )
    drive.check_writable()

    from dpprof.cli.console import counted
    from dpprof.cli.grid_run import run_grid
    from dpprof.drive.sweep import Sweep

    planned = Sweep(grid.config.sweep_name, drive, launcher, grid.experiments, foreseen=grid.foreseen)
    device = next(iter(grid.experiments.values())).device
    what = counted(len(grid.experiments), "experiment")
    opening = f"{what} on {device}, each in a clean process of its own"
    if grid.foreseen:
        opening += f"; then {counted(len(grid.foreseen), 'estimate')} of a larger model"
    return partial(run_grid, planned, "sweep", opening, "measured", resume=grid.config.resume, is_timed=True)

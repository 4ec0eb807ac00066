"""`dpprof sweep`: measure a grid of experiments."""

import click

from dpprof.cli.options import given, options_of


@click.command()
@options_of("sweep")
def sweep(**options: str | None) -> None:
    """Measure a grid of experiments.

    Trainers x batch sizes x sequence lengths x model sizes x precisions, one clean process each.

    \b
    dpprof sweep
    dpprof sweep --trainers flat,ghost --batch-sizes 2,4,8 --seq-lens 256
    dpprof sweep --config scripts/profiling_config.json
    dpprof sweep --sweep-name mine --resume true     # go on with an earlier one
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.flat import parse_drive
    from dpprof.config.grid import build_grid
    from dpprof.drive.launch.launcher import make_launcher

    drive, values = parse_drive(given(options))
    launcher = make_launcher(drive)
    grid = build_grid(values, cuda_available=launcher.machine.cuda_available)
    drive.check_writable()

    from dpprof.cli.grid_run import run_grid
    from dpprof.drive.campaign import new_name
    from dpprof.drive.sweep import Sweep

    name = grid.config.sweep_name or new_name("sweep")
    planned = Sweep(name, drive, launcher, grid.experiments, foreseen=grid.foreseen)
    device = next(iter(grid.experiments.values())).device
    opening = f"sweep {name}: {len(grid.experiments)} experiments on {device}"
    if grid.foreseen:
        opening += f", then {len(grid.foreseen)} estimates of a larger model"
    run_grid(planned, opening, "measured", resume=grid.config.resume, is_timed=True)

"""`dpprof sweep`: measure a grid of experiments."""

import click

from dpprof.cli.options import cuda_available, given, options_of


@click.command()
@options_of("sweep")
def sweep(**options: str | None) -> None:
    """Measure a grid of experiments.

    Trainers x batch sizes x sequence lengths x model sizes x precisions, one clean process each.

    \b
    dpprof sweep
    dpprof sweep --trainers dpsgd,dpsgd_ghost --batch-sizes 2,4,8 --seq-lens 256
    dpprof sweep --config scripts/profiling_config.json
    dpprof sweep --sweep-name mine --resume true     # go on with an earlier one
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.flat import parse_drive
    from dpprof.config.grid import build_grid

    drive, values = parse_drive(given(options))
    grid = build_grid(values, cuda_available=cuda_available)
    drive.check_writable()

    from dpprof.cli.conduct import conduct
    from dpprof.drive.campaign import Sweep, new_name

    planned = Sweep(grid.config.sweep_name or new_name("sweep"), grid.experiments, drive)
    device = next(iter(grid.experiments.values())).device
    opening = f"sweep {planned.name}: {len(grid.experiments)} experiments on {device}"
    conduct(planned, opening, "measured", resume=grid.config.resume, is_timed=True)

"""`dpprof estimate`: what a grid of experiments would need, computed on fake tensors."""

import click

from dpprof.cli.options import given, options_of, split
from dpprof.config.experiment import (
    ESTIMATE,
    MEASURE_ONLY,
    DriveConfig,
    EstimateConfig,
    ExperimentConfig,
)
from dpprof.config.grid import AXES, SweepConfig

# Options of a sweep that make no difference to an estimate, which comes out the same every time.
NOT_ESTIMATED = ("repeats", "launcher")


@click.command()
@options_of(SweepConfig, without=NOT_ESTIMATED)
@options_of(ExperimentConfig, without=[*AXES.values(), *MEASURE_ONLY])
@options_of(EstimateConfig)
@options_of(DriveConfig, without=NOT_ESTIMATED)
def estimate(**options: str | None) -> None:
    """Estimate a grid of experiments without running it.

    The training step of every experiment runs on fake tensors, which have shapes and no data: nothing is
    allocated, and no GPU is needed. Gives the peak memory by category and phase, the bytes moved and the
    FLOPs, whether it fits a device, and the least time that a step can take there.

    \b
    dpprof estimate --target H100                       # the default grid for a GPU: 1b, all trainers
    dpprof estimate --model-sizes medium --batch-sizes 8,16 --seq-lens 1024 --device-memory-gib 24
    dpprof estimate --device cpu --model-sizes small --trainers dpsgd,dpsgd_ghost
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.grid import build_grid
    from dpprof.config.settings import parse_all

    drive_values, values = split(given(options), DriveConfig)
    own_values, values = split(values, EstimateConfig)
    drive, own = parse_all(DriveConfig, drive_values), parse_all(EstimateConfig, own_values)
    grid = build_grid({**values, "passes": ESTIMATE}, cuda_available=lambda: True)
    drive.check_writable()

    from dpprof.cli.grid_run import run_grid
    from dpprof.drive.campaign import new_name
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.sweep import Sweep

    name = grid.config.sweep_name or new_name(ESTIMATE)
    planned = Sweep(name, drive, make_launcher(drive), grid.experiments, workers=own.workers)
    opening = f"{name}: {len(grid.experiments)} experiments on fake tensors, {own.workers} at a time"
    run_grid(planned, opening, "estimated", resume=grid.config.resume, is_timed=False)

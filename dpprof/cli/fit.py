"""`dpprof fit`: the largest batch, or sequence, that a device's memory holds."""

import click

from dpprof.cli.options import given, options_of, split
from dpprof.config.experiment import (
    ESTIMATE,
    MEASURE_ONLY,
    DriveConfig,
    EstimateConfig,
    ExperimentConfig,
    FitConfig,
)
from dpprof.config.grid import AXES, SweepConfig

# Options of a sweep that a search has no use for.
NOT_FITTED = ("repeats", "launcher", "resume", "accumulation_steps", "savings")


@click.command()
@options_of(FitConfig)
@options_of(SweepConfig, without=NOT_FITTED)
@options_of(ExperimentConfig, without=[*AXES.values(), *MEASURE_ONLY, *NOT_FITTED])
@options_of(EstimateConfig)
@options_of(DriveConfig, without=NOT_FITTED)
def fit(**options: str | None) -> None:
    """Find the largest batch that fits a device.

    For every trainer and sequence length, or with along=seq_len the longest sequence for every batch. The
    steps run on fake tensors, so no GPU is needed; verify=true then measures the answers on this machine.

    \b
    dpprof fit --target H100 --seq-lens 512,1024                    # 1b, all trainers
    dpprof fit --target A100-40GB --logical-batch 4096 --precisions fp32,bf16
    dpprof fit --device cpu --model-sizes small --device-memory-gib 0.5 --seq-lens 128 --verify true
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.grid import build_grid
    from dpprof.config.settings import parse_all, refuse
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.figures.capacity import capacity_bytes

    drive_values, values = split(given(options), DriveConfig)
    workers_values, values = split(values, EstimateConfig)
    fit_values, values = split(values, FitConfig)
    drive, own = parse_all(DriveConfig, drive_values), parse_all(FitConfig, fit_values)
    workers = parse_all(EstimateConfig, workers_values).workers
    launcher = make_launcher(drive)
    axis = {"batch_size": "batch_sizes", "seq_len": "seq_lens"}[own.along]
    if values.get(axis, "auto") != "auto":
        raise refuse(axis, values[axis], f"auto with along={own.along}, which finds it")
    grid = build_grid(
        {**values, axis: "1", "passes": ESTIMATE, "savings": False}, cuda_available=lambda: True
    )
    first = next(iter(grid.experiments.values()))
    if capacity_bytes(first) is None:
        raise refuse("device_memory_gib", first.device_memory_gib, "a number above 0, or a target by name")
    if own.logical_batch and first.poisson_sampling:
        raise refuse("logical_batch", own.logical_batch, "0 with poisson_sampling=true")
    if own.verify and first.device == "cuda" and not launcher.machine.cuda_available():
        raise refuse("verify", True, "false: torch finds no CUDA device on this machine to measure on")
    drive.check_writable()

    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import new_name, run_campaign
    from dpprof.drive.fit import Fit
    from dpprof.tracking.tracker import Tracker

    name = grid.config.sweep_name or new_name("fit")
    planned = Fit(name, drive, launcher, grid.experiments, own, workers)
    planned.check()
    tracker = Tracker()
    with Progress() as progress:
        progress.say(f"{name}: {len(grid.experiments)} searches on fake tensors, {workers} at a time")
        run_campaign(planned, tracker, progress)
        if planned.text:
            progress.say("")
            progress.say(planned.text)
            progress.say(f"kept in {planned.folder.path}, with the run folder of every evaluation")
    planned.raise_for_end()

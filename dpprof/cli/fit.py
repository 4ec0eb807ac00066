"""`dpprof fit`: the largest batch, or sequence, that a device's memory holds."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split

if TYPE_CHECKING:
    from dpprof.config.experiment import ExperimentConfig
    from dpprof.config.fit import FitConfig
    from dpprof.drive.fit import Fit
    from dpprof.drive.launch.launcher import Machine


@click.command(cls=GroupedOptions)
@options_of("fit")
def fit(**options: str | None) -> None:
    """Find the largest batch that fits a device.

    Searches for each trainer and sequence length; with --along seq_len, for the longest sequence at each
    batch size, and with --along world_size for the fewest GPUs that hold the model in shards. Steps run on
    fake tensors, so no GPU is needed. --verify true then measures the answers here.

    \b
    dpprof fit --target H100 --seq-lens 512,1024       # 1b, all trainers
    dpprof fit --target A100-40GB --logical-batch 4096 --precisions fp32,bf16
    dpprof fit --target T4 --parallel fsdp2 --along world_size --trainers bk
    dpprof fit --device cpu --device-memory-gib 0.5 --verify true
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What runs the searches, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.drive import WorkersConfig
    from dpprof.config.estimating import EstimatingConfig
    from dpprof.config.fit import FitConfig
    from dpprof.config.flat import parse_drive
    from dpprof.config.grid import build_grid
    from dpprof.drive.jobs import at_a_time
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.workload_module import refuse_missing_module
    from dpprof.settings import parse_all, refuse

    drive, values = parse_drive(given_values)
    workers_values, values = split(values, WorkersConfig)
    fit_values, values = split(values, FitConfig)
    own, given_workers = parse_all(FitConfig, fit_values), parse_all(WorkersConfig, workers_values).workers
    launcher = make_launcher(drive)
    axis, auto = {"batch_size": ("batch_sizes", "auto"), "seq_len": ("seq_lens", "auto")}.get(
        own.along, (own.along, "1")
    )
    if str(values.get(axis, auto)) != auto:
        raise refuse(axis, values[axis], f"{auto} with along={own.along}, which finds it")
    grid = build_grid(
        {**values, axis: "1", "savings": False},
        EstimatingConfig,
        cuda_available=lambda: True,
        look_for=partial(refuse_missing_module, launcher=launcher),
    )
    first = next(iter(grid.experiments.values()))
    _check(own, first, launcher.machine)
    if own.logical_batch:
        _check_accumulating(own.logical_batch, grid.experiments.values())
    workers = at_a_time(launcher, first, given_workers)
    drive.check_writable()

    from dpprof.drive.fit import Fit

    planned = Fit(grid.config.sweep_name, drive, launcher, grid.experiments, own, workers)
    return partial(_run, planned)


def _run(planned: "Fit") -> None:
    from dpprof.drive.claim import claimed

    with claimed(planned, "fit"):
        _run_claimed(planned)


def _run_claimed(planned: "Fit") -> None:
    from dpprof.cli.console import counted
    from dpprof.cli.fit_view import print_answers
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.drive.campaign import run_campaign
    from dpprof.tracking.tracker import Tracker

    with Progress(is_counted=False) as progress:
        searches = counted(len(planned.experiments), "search", "searches")
        progress.say(f"{planned.name}: {searches} on fake tensors, {planned.workers} at a time")
        run_campaign(planned, Tracker(), progress)
    if planned.text:
        print_answers(progress.console, planned.text)
    progress.say(
        f"searched for {duration(progress.seconds)}; every estimate is kept in {planned.folder.path}"
    )
    planned.end()


def _check(own: "FitConfig", experiment: "ExperimentConfig", machine: "Machine") -> None:
    """Whether the search can answer what is asked of it. Raises ConfigError."""
    from dpprof.config.fit import WORLD_SIZE
    from dpprof.figures.capacity import capacity_bytes
    from dpprof.settings import refuse
    from dpprof.vocabulary.parallel import FSDP2, NONE

    if capacity_bytes(experiment) is None:
        given_gib = experiment.estimating.device_memory_gib
        raise refuse("device_memory_gib", given_gib, "a number above 0, or a target by name")
    if own.along == WORLD_SIZE and experiment.parallel != FSDP2:
        raise refuse(
            "parallel", experiment.parallel, f"{FSDP2} with along={WORLD_SIZE}: no other shares memory"
        )
    if own.verify and experiment.parallel != NONE:
        raise refuse("verify", True, "false with several ranks, which are estimated alone")
    if own.logical_batch and experiment.poisson_sampling:
        raise refuse("logical_batch", own.logical_batch, "0 with poisson_sampling=true")
    if own.verify and experiment.device == "cuda" and not machine.cuda_available():
        raise refuse("verify", True, "false: torch finds no CUDA device on this machine to measure on")


def _check_accumulating(logical_batch: int, experiments: "Iterable[ExperimentConfig]") -> None:
    """Whether all can split a logical batch. Raises ConfigError."""
    from dpprof.config.fit import ACCUMULATING
    from dpprof.errors import ConfigError

    for experiment in experiments:
        try:
            dataclasses.replace(experiment, accumulation_steps=ACCUMULATING)
        except ConfigError as error:
            raise ConfigError(
                f"logical_batch: {logical_batch} takes several physical batches; {error}"
            ) from None

"""`dpprof plan`: from a privacy budget to batch, noise, memory and hours."""

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split

if TYPE_CHECKING:
    from dpprof.drive.plan import Plan


@click.command(cls=GroupedOptions)
@options_of("plan")
def plan(**options: str | None) -> None:
    """Plan a training from its privacy budget.

    For each logical batch: the noise multiplier, and how many steps. For each trainer: the largest physical
    batch that fits, found by estimates, and how long training takes: by measured steps if there are
    any, else at least. Recommends one way to train, and says why.

    \b
    dpprof plan --target H100 --num-devices 8 --dataset-size 10000000   # 1b
    dpprof plan --target T4 --model-size small --dataset-size 50000 --epochs 10
    dpprof plan --device cpu --device-memory-gib 4 --dataset-size 20000
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What makes the plan, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.drive import WorkersConfig
    from dpprof.config.fit import FitConfig
    from dpprof.config.flat import parse_drive
    from dpprof.config.plan import PlanConfig
    from dpprof.drive.jobs import at_a_time
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.plan_inputs import experiments_to_plan
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    workers_values, values = split(values, WorkersConfig)
    plan_values, values = split(values, PlanConfig)
    asked = parse_all(PlanConfig, plan_values)
    for batch in asked.batches:
        asked.check_against(batch)
    launcher = make_launcher(drive)
    experiments, left_out = experiments_to_plan(asked, values, launcher)
    given_workers = parse_all(WorkersConfig, workers_values).workers
    workers = at_a_time(launcher, next(iter(experiments.values())), given_workers)
    drive.check_writable()

    from dpprof.drive.plan import Plan

    planned = Plan(
        "",
        drive,
        launcher,
        experiments,
        FitConfig(headroom=asked.headroom, logical_batch=2),
        workers,
        asked=asked,
        left_out=left_out,
    )
    return partial(_run, planned)


def _run(planned: "Plan") -> None:
    from dpprof.drive.claim import claimed

    with claimed(planned, "plan"):
        _run_claimed(planned)


def _run_claimed(planned: "Plan") -> None:
    from dpprof.cli.console import counted
    from dpprof.cli.fit_view import print_answers
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.drive.campaign import run_campaign
    from dpprof.drive.measured_runs import measured_runs
    from dpprof.drive.plan_inputs import noises
    from dpprof.tracking.tracker import Tracker

    with Progress(is_counted=False) as progress:
        batches = counted(len(planned.asked.batches), "logical batch", "logical batches")
        progress.say(f"{planned.name}: the noise for {batches}")
        planned.noises = noises(planned.asked)
        planned.measured = measured_runs(
            planned.asked.measured, planned.experiments, planned.folder, progress.warn
        )
        trainers = counted(len(planned.experiments), "trainer")
        progress.say(f"the largest batch of {trainers}, on fake tensors, {planned.workers} at a time")
        run_campaign(planned, Tracker(), progress)
    if planned.text:
        print_answers(progress.console, planned.text)
        progress.say(
            f"planned in {duration(progress.seconds)}; {planned.folder.path}/plan.html has all of it"
        )
    if planned.text and planned.made is not None and planned.made.recommended is not None:
        place = shlex.quote(str(planned.folder.path))
        progress.say(f"the training script: dpprof snippet {place} --output train.py")
        progress.say(f"the recommended row, measured: dpprof profile --plan {place}")
        progress.say(f"what would make it faster or smaller: dpprof advise --plan {place}")
    planned.end()

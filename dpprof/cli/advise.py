"""`dpprof advise`: what to change in an experiment that does not fit or is slow."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split

if TYPE_CHECKING:
    from dpprof.drive.advise import Advise


@click.command(cls=GroupedOptions)
@options_of("advise")
def advise(**options: str | None) -> None:
    """Advise what to change when it does not fit, or is slow.

    Estimates one experiment, and the same with one change at a time: another trainer, activation
    checkpointing, bf16, smaller physical batches, the lean loop, other norms, fsdp2, LoRA. Gives each
    change's bytes, FLOPs and least time, the cheapest that helps first; if none makes it fit alone, several
    together.

    \b
    dpprof advise --trainer flat --batch-size 32 --target A100-40GB   # 1b
    dpprof advise --trainer ghost --seq-len 2048 --target H100 --headroom 5%
    dpprof advise --plan runs/plan-20260101-120000   # its recommended row
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What makes the estimates, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.advice import AdviceConfig
    from dpprof.config.drive import WorkersConfig
    from dpprof.config.flat import parse_drive
    from dpprof.config.from_plan import FromPlanConfig
    from dpprof.drive.advise_inputs import experiment_to_advise
    from dpprof.drive.jobs import at_a_time
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.planned_row import planned_row
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    plan_values, values = split(values, FromPlanConfig)
    plan = parse_all(FromPlanConfig, plan_values).plan
    if plan:
        values = planned_row(plan).fill(values, "advise")
    workers_values, values = split(values, WorkersConfig)
    asked_values, values = split(values, AdviceConfig)
    asked = parse_all(AdviceConfig, asked_values)
    launcher = make_launcher(drive)
    experiment, changes, left_out = experiment_to_advise(asked, values, launcher)
    workers = at_a_time(launcher, experiment, parse_all(WorkersConfig, workers_values).workers)
    drive.check_writable()

    from dpprof.drive.advise import Advise

    return partial(_run, Advise("", drive, launcher, experiment, asked, changes, left_out, workers))


def _run(advice: "Advise") -> None:
    from dpprof.drive.claim import claimed

    with claimed(advice, "advice"):
        _run_claimed(advice)


def _run_claimed(advice: "Advise") -> None:
    from dpprof.cli.console import counted
    from dpprof.cli.fit_view import print_answers
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.drive.campaign import run_campaign
    from dpprof.tracking.tracker import Tracker

    with Progress(is_counted=False) as progress:
        changes = counted(len(advice.changes) + 1, "change")
        progress.say(f"{advice.name}: {changes} on fake tensors, {advice.workers} at a time")
        run_campaign(advice, Tracker(), progress)
    if advice.text:
        print_answers(progress.console, advice.text)
        said = f"advised in {duration(progress.seconds)}; {advice.folder.path}/advice.html has all of it"
        progress.say(said)
    advice.end()

"""`dpprof profile`: measure one experiment."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split

if TYPE_CHECKING:
    from dpprof.drive.single import SingleRun


@click.command(cls=GroupedOptions)
@options_of("profile")
def profile(**options: str | None) -> None:
    """Measure one experiment.

    One trainer at one batch size and sequence length, with the passes that you choose.

    \b
    dpprof profile --trainer DPGhostClippingTrainer --batch-size 4 --seq-len 512
    dpprof profile --plan runs/plan-20260101-120000   # the recommended row
    mlflow run . -e profile -P trainer=DPGhostClippingTrainer -P batch_size=4
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What runs the experiment, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.flat import parse_drive, parse_experiment
    from dpprof.config.from_plan import FromPlanConfig
    from dpprof.config.measuring import MeasuringConfig
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.planned_row import planned_row
    from dpprof.drive.workload_module import refuse_missing_module
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    plan_values, values = split(values, FromPlanConfig)
    plan = parse_all(FromPlanConfig, plan_values).plan
    row = planned_row(plan) if plan else None
    launcher = make_launcher(drive)
    config = parse_experiment(row.fill(values, "profile") if row else values, MeasuringConfig)
    refuse_missing_module(config.workload, launcher)
    config = config.resolve(cuda_available=launcher.machine.cuda_available())
    drive.check_writable()

    from dpprof.drive.single import SingleRun

    differences = row.differences(config) if row else []
    predicted = row.predicted if row and not differences else None
    return partial(_run, SingleRun("", drive, launcher, config, predicted), differences)


def _run(single: "SingleRun", differences: list[str]) -> None:
    from dpprof.drive.claim import claimed

    with claimed(single, "profile"):
        _run_claimed(single, differences)


def _run_claimed(single: "SingleRun", differences: list[str]) -> None:
    from dpprof.cli.plan_table import plan_table
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.drive.campaign import run_campaign
    from dpprof.figures.results import FINISHED
    from dpprof.tracking.tracker import Tracker

    folder = single.run_folder
    with Progress() as progress:
        progress.say(f"measuring on {single.config.device}; everything is kept in {folder.path}")
        progress.warn_if_busy(single.launcher.machine)
        if differences:
            progress.warn(f"it is not set beside the plan: {'; '.join(differences)}")
        run_campaign(single, Tracker(), progress)
    if single.not_logged is None:
        for result in single.results:
            if result.status == FINISHED and result.record is not None:
                pages = [page for page in (folder.timeline_page, folder.roofline_page) if page.exists()]
                said = [f"measured in {duration(progress.seconds)}"]
                said += [f"{result.record.num_parameters:,} parameters", *map(str, pages)]
                progress.say("; ".join(said))
                progress.say(f"where its memory and time go: dpprof show {folder.path}")
                if result.predicted is not None:
                    progress.console.print(plan_table(result.predicted, result.record))
    single.end()

"""`dpprof verify`: prove that trainers compute DP-SGD's gradient, privately."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of, split

if TYPE_CHECKING:
    from dpprof.drive.trainer_check import TrainerCheck


@click.command(cls=GroupedOptions)
@options_of("verify")
def verify(**options: str | None) -> None:
    """Verify that trainers train as DP-SGD does.

    Noise off, the gradient must be that of a naive per-sample loop. Noise on, it must have the right
    deviation and be independent. No sample, however odd, may move the sum by more than max_grad_norm.
    Ends with exit code 3 if a trainer fails.

    \b
    dpprof verify
    dpprof verify --trainers flat,ghost --workload mymodel:gpt2 --precision bf16
    dpprof verify --plan runs/plan-20260101-120000   # its trainer and model
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What runs the checks, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.check import experiments_to_verify
    from dpprof.config.flat import parse_drive
    from dpprof.config.from_plan import FromPlanConfig
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.planned_row import planned_row
    from dpprof.drive.workload_module import refuse_missing_module
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    plan_values, values = split(values, FromPlanConfig)
    plan = parse_all(FromPlanConfig, plan_values).plan
    if plan:
        values = planned_row(plan).fill_verify(values)
    launcher = make_launcher(drive)
    configs = experiments_to_verify(values, cuda_available=launcher.machine.cuda_available())
    refuse_missing_module(configs[0].workload, launcher)
    drive.check_writable()

    from dpprof.drive.trainer_check import TrainerCheck

    experiments = {config.run_name: config for config in configs}
    return partial(_run, TrainerCheck("", drive, launcher, experiments, kind="verify"))


def _run(check: "TrainerCheck") -> None:
    from dpprof.drive.claim import claimed

    with claimed(check, "verify"):
        _run_claimed(check)


def _run_claimed(check: "TrainerCheck") -> None:
    from dpprof.cli.console import counted
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.cli.verify_view import print_verified
    from dpprof.drive.campaign import run_campaign
    from dpprof.tracking.tracker import Tracker

    first = next(iter(check.experiments.values()))
    with Progress() as progress:
        progress.say(
            f"verifying {counted(len(check.experiments), 'trainer')} on {first.device}: {first.model_name}, "
            f"{first.batch_size} samples of {first.seq_len} tokens, {first.precision}"
        )
        run_campaign(check, Tracker(), progress)
    print_verified(progress.console, check.results)
    progress.say(f"verified in {duration(progress.seconds)}; kept in {check.folder.path}")
    check.end()

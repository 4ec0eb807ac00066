"""`dpprof test`: check quickly that every trainer works on this machine, and trains as it should."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from dpprof.cli.help import GroupedOptions
from dpprof.cli.options import given, options_of
from dpprof.config.commands import TestConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

if TYPE_CHECKING:
    from dpprof.drive.trainer_check import TrainerCheck


@click.command(cls=GroupedOptions)
@options_of("test")
def test(**options: str | None) -> None:
    """Check every trainer on this machine.

    Each trainer does a step on a small model, and is verified as by `dpprof verify`: its gradient, its
    noise, and what one sample can change.

    \b
    dpprof test --device cpu
    mlflow run . -e test -P device=cpu
    """
    from dpprof.cli.waiting import waiting

    with waiting("getting ready"):
        run = _planned(given(options))
    run()


def _planned(given_values: dict[str, object]) -> Callable[[], None]:
    """What runs the check, once the options are checked and all is loaded. Raises ConfigError."""
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.flat import parse_drive
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.settings import parse_all

    drive, values = parse_drive(given_values)
    launcher = make_launcher(drive)
    device = parse_all(TestConfig, values).device
    experiments = test_experiments(device, has_cuda=launcher.machine.cuda_available())
    drive.check_writable()

    from dpprof.drive.trainer_check import TrainerCheck

    return partial(_run, TrainerCheck("", drive, launcher, experiments))


def _run(check: "TrainerCheck") -> None:
    from dpprof.drive.claim import claimed

    with claimed(check, "test"):
        _run_claimed(check)


def _run_claimed(check: "TrainerCheck") -> None:
    from dpprof.cli.console import counted
    from dpprof.cli.progress import Progress
    from dpprof.cli.time_left import duration
    from dpprof.drive.campaign import run_campaign
    from dpprof.tracking.tracker import Tracker

    with Progress() as progress:
        progress.say(f"checking {counted(len(check.experiments), 'trainer')} with a small model")
        run_campaign(check, Tracker(), progress)
    progress.say("")
    for trainer, (passed, words) in check.verdicts.items():
        if passed:
            progress.say(f"[TEST OK] {trainer} passed local test.")
            progress.say(f"          {words}")
        else:
            progress.say(f"[TEST FAILED] {trainer}: {words}")
    progress.say(f"tested in {duration(progress.seconds)}; kept in {check.folder.path}")
    check.end()


def test_experiments(device: str, *, has_cuda: bool) -> dict[str, ExperimentConfig]:
    """One small experiment per trainer: a timed step, its peak memory, and all checks of `verify`."""
    configs = [
        ExperimentConfig(
            trainer=trainer,
            device=device,
            model_size="tiny",
            batch_size=4,
            seq_len=16,
            how=MeasuringConfig(warmup_steps=1, measured_steps=1, passes="clean,memory,verify"),
        ).resolve(cuda_available=has_cuda)
        for trainer in DEFAULT_TRAINERS
    ]
    return {config.run_name: config for config in configs}

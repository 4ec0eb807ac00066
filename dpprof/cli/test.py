"""`dpprof test`: check quickly that every trainer works on this machine, and computes the right gradient."""

from dataclasses import dataclass

import click

from dpprof.cli.options import given, options_of, split
from dpprof.config.experiment import DriveConfig, ExperimentConfig
from dpprof.config.settings import fields, setting
from dpprof.vocabulary.trainers import TRAINERS


@dataclass(frozen=True)
class TestConfig:
    """The settings of the test entry point."""

    __test__ = False  # not a test class, whatever its name

    device: str = setting(
        "auto",
        "auto takes CUDA where there is one.",
        choices=fields(ExperimentConfig)["device"].metadata["choices"],
    )


@click.command()
@options_of(TestConfig, DriveConfig)
def test(**options: str | None) -> None:
    """Check every trainer on this machine.

    One step on a model of about 1M parameters. Each trainer must run, and give
    the clipped gradient of a naive per-sample loop (noise off).

    \b
    dpprof test --device cpu
    mlflow run . -e test -P device=cpu
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from dpprof.config.settings import parse_all
    from dpprof.drive.launch.launcher import make_launcher

    drive_values, values = split(given(options), DriveConfig)
    drive = parse_all(DriveConfig, drive_values)
    device = parse_all(TestConfig, values).device
    launcher = make_launcher(drive)
    experiments = test_experiments(device, has_cuda=launcher.machine.cuda_available())
    drive.check_writable()

    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import new_name, run_campaign
    from dpprof.drive.trainer_check import TrainerCheck
    from dpprof.tracking.tracker import Tracker

    check = TrainerCheck(new_name("test"), drive, launcher, experiments)
    tracker = Tracker()
    with Progress() as progress:
        run_campaign(check, tracker, progress)
        for trainer, (passed, words) in check.verdicts.items():
            outcome = "[TEST OK] {} passed local test." if passed else "[TEST FAILED] {}"
            progress.say(outcome.format(trainer) + ("" if passed else f": {words}"))
            if passed:
                progress.say(f"          {words}")
    check.raise_for_end()


def test_experiments(device: str, *, has_cuda: bool) -> dict[str, ExperimentConfig]:
    """One small experiment per trainer: a timed step, its peak memory, and the check of its gradient."""
    configs = [
        ExperimentConfig(
            trainer=trainer,
            device=device,
            model_size="tiny",
            hidden_dim=128,
            num_layers=4,
            num_heads=4,
            batch_size=4,
            seq_len=64,
            warmup_steps=1,
            measured_steps=1,
            passes="clean,memory,gradient_check",
        ).resolve(cuda_available=has_cuda)
        for trainer in TRAINERS
    ]
    return {config.run_name: config for config in configs}

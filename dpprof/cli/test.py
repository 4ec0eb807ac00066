"""`dpprof test`: check quickly that every trainer works on this machine, and computes the right gradient."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dpprof.cli.options import cuda_available, given, options_of, split
from dpprof.config.experiment import DriveConfig, ExperimentConfig
from dpprof.config.settings import fields, setting
from dpprof.vocabulary.trainers import TRAINERS

if TYPE_CHECKING:
    from dpprof.figures.results import Result


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

    drive_values, values = split(given(options), DriveConfig)
    drive = parse_all(DriveConfig, drive_values)
    experiments = {
        config.run_name: config for config in test_experiments(parse_all(TestConfig, values).device)
    }
    drive.check_writable()

    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import Sweep, new_name, raise_for, run_sweep
    from dpprof.errors import ExperimentsFailed, TrackingError
    from dpprof.figures.results import FAILED
    from dpprof.tracking.tracker import Tracker

    planned = Sweep(new_name("test"), experiments, drive, kind="test")
    tracker = Tracker()
    with Progress() as progress:
        run_sweep(planned, {}, tracker, progress)
        verdicts = {result.config.trainer: verdict(result) for result in planned.results}
        for trainer, (passed, words) in verdicts.items():
            outcome = "[TEST OK] {} passed local test." if passed else "[TEST FAILED] {}"
            progress.say(outcome.format(trainer) + ("" if passed else f": {words}"))
            if passed:
                progress.say(f"          {words}")
        if planned.interrupted:
            raise_for(planned)
        failed = [trainer for trainer, (passed, _) in verdicts.items() if not passed]
        try:
            tracker.log_metrics(planned.parent, outcomes(planned.results))
            if failed:
                tracker.set_status(planned.parent, FAILED)
        except TrackingError as error:
            progress.warn(str(error))
    if failed:
        raise ExperimentsFailed(f"{len(failed)} of {len(verdicts)} trainers failed: {', '.join(failed)}")
    raise_for(planned)


def test_experiments(device: str) -> list[ExperimentConfig]:
    """One small experiment per trainer: a timed step, its peak memory, and the check of its gradient."""
    has_cuda = cuda_available()
    return [
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


def outcomes(results: "list[Result]") -> dict[str, float]:
    """For the parent run: whether each trainer passed, its step latency and its peak memory."""
    from dpprof.figures.names import PEAK, STEP

    found: dict[str, float] = {}
    for result in results:
        trainer = result.config.trainer
        found[f"test/{trainer}/passed"] = float(verdict(result)[0])
        metrics = result.metrics if result.figures else {}
        for name, metric in (("step_ms_median", STEP), ("peak_allocated_mib", PEAK)):
            if metric in metrics:
                found[f"test/{trainer}/{name}"] = metrics[metric]
    return found


def verdict(result: "Result") -> tuple[bool, str]:
    """Whether a trainer passed, and the figures or the reason."""
    from dpprof.figures.gradient_verdict import PASS
    from dpprof.figures.results import describe

    check, record = result.gradient_verdict, result.record
    has_passed = check is not None and check.word == PASS
    return has_passed and record is not None and not record.failed_passes, describe(result)

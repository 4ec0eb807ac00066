"""`dpprof profile`: measure one experiment."""

import click

from dpprof.cli.options import cuda_available, given, options_of


@click.command()
@options_of("profile")
def profile(**options: str | None) -> None:
    """Measure one experiment.

    One trainer at one batch size and sequence length, with the passes asked for.

    \b
    dpprof profile --trainer DPGhostClippingTrainer --batch-size 4 --seq-len 512
    mlflow run . -e profile -P trainer=DPGhostClippingTrainer -P batch_size=4
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    from pathlib import Path

    from dpprof.config.flat import parse_drive, parse_experiment
    from dpprof.config.measuring import MeasuringConfig

    drive, values = parse_drive(given(options))
    config = parse_experiment(values, MeasuringConfig).resolve(cuda_available=cuda_available())
    drive.check_writable()

    from functools import partial

    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import faults, new_name, raise_for_checks
    from dpprof.drive.run import drive_experiment
    from dpprof.errors import ExperimentsFailed, Interrupted, TrackingError
    from dpprof.figures.results import FINISHED, KILLED
    from dpprof.record.folder import RunFolder
    from dpprof.tracking.tracker import Tracker

    tracker = Tracker()
    folder = RunFolder(Path(drive.runs_dir) / new_name("profile") / config.run_name)
    with Progress() as progress:
        progress.say(f"measuring on {config.device}; everything is kept in {folder.path}")
        progress.warn_if_busy()
        progress.started(1, 1, config.run_name)
        result = drive_experiment(config, folder, drive, partial(progress.line, config.run_name))
        progress.ended(result)
        try:
            tracker.log_result(result, {})
        except TrackingError as error:
            raise TrackingError(f"{error}. When it is back: dpprof log {folder.path}") from error
    if result.status == KILLED:
        raise Interrupted(f"stopped; what was measured is in {folder.path}")
    if faults([result]):
        raise ExperimentsFailed(
            f"{config.run_name} failed; see {folder.log if folder.log.exists() else folder.path}"
        )
    if result.status == FINISHED and result.record is not None:
        pages = [page for page in (folder.timeline_page, folder.roofline_page) if page.exists()]
        progress.say("; ".join([f"{result.record.num_parameters:,} parameters", *map(str, pages)]))
    raise_for_checks([result])

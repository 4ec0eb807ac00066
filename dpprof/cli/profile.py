"""`dpprof profile`: measure one experiment."""

import click

from dpprof.cli.options import given, options_of


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

    from dpprof.config.flat import parse_drive, parse_experiment
    from dpprof.config.measuring import MeasuringConfig
    from dpprof.drive.launch.launcher import make_launcher

    drive, values = parse_drive(given(options))
    launcher = make_launcher(drive)
    config = parse_experiment(values, MeasuringConfig).resolve(
        cuda_available=launcher.machine.cuda_available()
    )
    drive.check_writable()

    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import new_name, run_campaign
    from dpprof.drive.single import SingleRun
    from dpprof.figures.results import FINISHED
    from dpprof.tracking.tracker import Tracker

    tracker = Tracker()
    single = SingleRun(new_name("profile"), drive, launcher, config)
    folder = single.run_folder
    with Progress() as progress:
        progress.say(f"measuring on {config.device}; everything is kept in {folder.path}")
        progress.warn_if_busy(launcher.machine)
        run_campaign(single, tracker, progress)
    if single.not_logged is None:
        for result in single.results:
            if result.status == FINISHED and result.record is not None:
                pages = [page for page in (folder.timeline_page, folder.roofline_page) if page.exists()]
                progress.say("; ".join([f"{result.record.num_parameters:,} parameters", *map(str, pages)]))
    single.raise_for_end()

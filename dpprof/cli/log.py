"""`dpprof log`: log run folders to MLflow that are not there yet."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.tracking.tracker import Tracker


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
def log(folders: tuple[str, ...]) -> None:
    """Log run folders to MLflow.

    Takes run folders and whole sweep folders.

    Use it for runs that were measured on another machine, or while MLflow could not be reached. Folders that
    are already in the store are not logged again.

    \b
    dpprof log runs/sweep-20260101-120000
    dpprof log runs/sweep-20260101-120000/DPSGDTrainer_tiny_bs4_seq512
    """

    from dpprof.cli.waiting import waiting
    from dpprof.errors import ConfigError, DpprofError
    from dpprof.record.folder import RunFolder, SweepFolder

    for name in folders:
        if not RunFolder(name).config.exists() and not SweepFolder(name).runs():
            raise ConfigError(f"FOLDER: got {name!r}, allowed: a run folder or a sweep folder")
    with waiting("opening MLflow's store"):
        from dpprof.cli.progress import Progress
        from dpprof.tracking.tracker import Tracker

        tracker = Tracker()
    left_out: list[str] = []
    with Progress() as progress:
        for name in folders:
            left_out += _log(name, tracker, progress)
    if left_out:
        raise DpprofError(f"not logged, since it cannot be read: {'; '.join(left_out)}")


def _log(name: str, tracker: "Tracker", progress: "Progress") -> list[str]:
    """Log a folder. Returns a sentence for each of its runs that cannot be read, which are left out."""
    from pathlib import Path

    from dpprof.config.drive import DriveConfig
    from dpprof.drive.campaign import run_campaign
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.run import write_pages
    from dpprof.drive.sweep import Sweep
    from dpprof.errors import Interrupted, TrackingError
    from dpprof.figures.results import read_results
    from dpprof.record.folder import RunFolder, SweepFolder

    path = Path(name).resolve()
    home, is_run = SweepFolder(path), RunFolder(path).config.exists()
    runs = [RunFolder(path)] if is_run else home.runs()
    results, damaged = read_results((run.name, run) for run in runs)
    for text in damaged:
        progress.warn(f"left out {text}")
    if is_run:
        for result in results:
            write_pages(result, progress.warn)
            progress.say(f"{name} is run {tracker.log_result(result, {})}")
    if is_run or not results:
        return damaged
    state = home.set_aside_damaged_state()
    if state:
        progress.warn(state)
    configs = {result.name: result.config for result in results}
    kind = home.read_state().get("kind", "sweep")
    drive = DriveConfig(runs_dir=str(path.parent))
    kept = {result.name: result for result in results}
    sweep = Sweep(path.name, drive, make_launcher(drive), configs, kind, kept=kept)
    run_campaign(sweep, tracker, progress)
    progress.say(f"{name}: {len(sweep.run_ids)} of {len(results)} runs are in MLflow")
    if sweep.interrupted:
        raise Interrupted(f"stopped while logging {name}; the same command goes on")
    if sweep.not_logged is not None:
        raise TrackingError(f"not all of {name} could be logged; the same command goes on")
    return damaged

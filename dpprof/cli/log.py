"""`dpprof log`: log run folders that are not yet in MLflow."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpprof.cli.streams import waiting
from dpprof.config.drive import DriveConfig
from dpprof.errors import ConfigError, DpprofError, Interrupted, TrackingError

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import Campaign
    from dpprof.tracking.tracker import Tracker


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
def log(folders: tuple[str, ...]) -> None:
    """Log run folders to MLflow.

    Takes run folders and whole sweep folders.

    Use it for runs that were measured on another machine, or while MLflow could not be reached. Folders that
    are already in the store are not logged again. An interrupted run is logged as far as it came.

    \b
    dpprof log runs/sweep-20260101-120000
    dpprof log runs/sweep-20260101-120000/DPSGDTrainer_tiny_bs4_seq512
    """
    from dpprof.record.folder import RunFolder, SweepFolder

    for name in folders:
        home = SweepFolder(name)
        if not RunFolder(name).config.exists() and not home.runs() and not home.state.exists():
            raise ConfigError(f"FOLDER: got {name!r}, allowed: a run folder or a sweep folder")
    with waiting("opening MLflow's store"):
        from dpprof.cli.progress import Progress
        from dpprof.drive.claim import held
        from dpprof.tracking.tracker import Tracker

        tracker = Tracker()
    left: list[str] = []
    damaged: list[str] = []
    with held(folders), Progress() as progress:
        for name in folders:
            campaign, unreadable = _campaign(name, progress)
            damaged += unreadable
            if not _is_logged(name, campaign, tracker, progress):
                left.append(name)
    if left:
        raise TrackingError(f"not all of {', '.join(left)} could be logged; the same command goes on")
    if damaged:
        raise DpprofError(f"not logged, since it cannot be read: {'; '.join(damaged)}")


def _is_logged(name: str, campaign: "Campaign", tracker: "Tracker", progress: "Progress") -> bool:
    """Log a folder, and tell whether all its readable runs are in MLflow."""
    from dpprof.drive.campaign import run_campaign
    from dpprof.pages.run_reports import write_run_reports

    run_campaign(campaign, tracker, progress, write_run_reports)
    if campaign.parent is None and campaign.run_ids:
        progress.say(f"{name} is run {', '.join(campaign.run_ids.values())}")
    else:
        progress.say(f"{name}: {len(campaign.run_ids)} of {len(campaign.results)} runs are in MLflow")
    if campaign.missing:
        progress.warn(f"{name} has no complete figures of {', '.join(campaign.missing)}")
    if campaign.interrupted:
        raise Interrupted(f"stopped while logging {name}; the same command goes on")
    return campaign.not_logged is None


def _campaign(name: str, progress: "Progress") -> tuple["Campaign", list[str]]:
    """Return the campaign that logs a run, a search or a sweep, and a sentence for each unreadable run."""
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.logged import SEARCHES, Logged
    from dpprof.drive.sweep import Sweep
    from dpprof.pages.sweep_reports import write_sweep_reports
    from dpprof.record.figures.results import read_results
    from dpprof.record.folder import RunFolder, SweepFolder, SweepState

    path = Path(name).resolve()
    is_run = RunFolder(path).config.exists()
    home = SweepFolder(path.parent if is_run else path)
    if not is_run and (damage := home.set_aside_damaged_state()):
        progress.warn(damage)
    state = SweepState("") if is_run else home.read_state()
    kind = state.kind
    runs = [RunFolder(path)] if is_run else home.runs()
    if kind in SEARCHES and home.path.joinpath(f"{kind}.json").exists():
        # Only runs that the answers rest on have a link.
        runs = [run for run in runs if run.mlflow.exists()]
    results, damaged = read_results((run.name, run) for run in runs)
    foreseen = [] if is_run else home.foreseen.runs()  # not logged, but part of the verdict
    _, damaged_foreseen = read_results((run.name, run) for run in foreseen)
    for text in [*damaged, *damaged_foreseen]:
        progress.warn(f"left out {text}")
    drive = DriveConfig(runs_dir=str(home.path.parent))
    here = (home.name, drive, make_launcher(drive))
    if is_run or kind in SEARCHES:
        return Logged(*here, results, kind), damaged
    kept = {result.name: result for result in results}
    configs = {name: result.config for name, result in kept.items()}
    planned = state.experiments
    sweep = Sweep(*here, configs, kind, kept=kept, planned=planned, write_reports=write_sweep_reports)
    return sweep, damaged

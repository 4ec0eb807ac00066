"""`dpprof log`: log run folders to MLflow that are not there yet."""

from typing import TYPE_CHECKING

import click

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
    from dpprof.cli.waiting import waiting
    from dpprof.errors import ConfigError, DpprofError, TrackingError
    from dpprof.record.folder import RunFolder, SweepFolder

    for name in folders:
        if not RunFolder(name).config.exists() and not SweepFolder(name).runs():
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
    """Log a folder, and say whether all of it is in MLflow that can be read."""
    from dpprof.drive.campaign import run_campaign
    from dpprof.errors import Interrupted

    run_campaign(campaign, tracker, progress)
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
    """What logs a run folder, the runs of a search, or a sweep; and a sentence for each run that cannot be
    read, which is left out.
    """
    from pathlib import Path

    from dpprof.config.drive import DriveConfig
    from dpprof.drive.launch.launcher import make_launcher
    from dpprof.drive.logged import SEARCHES, LoggedRun, LoggedSearch
    from dpprof.drive.sweep import Sweep
    from dpprof.figures.results import read_results
    from dpprof.record.folder import RunFolder, SweepFolder

    path = Path(name).resolve()
    is_run = RunFolder(path).config.exists()
    home = SweepFolder(path.parent if is_run else path)
    if not is_run and (damage := home.set_aside_damaged_state()):
        progress.warn(damage)
    state = {} if is_run else home.read_state()
    runs = [RunFolder(path)] if is_run else home.runs()
    if state.get("kind") in SEARCHES:
        # Those that were to be in MLflow have a link; the search left many more.
        runs = [run for run in runs if run.mlflow.exists()]
    results, damaged = read_results((run.name, run) for run in runs)
    foreseen = [] if is_run else home.foreseen.runs()  # not logged, but the verdict tells them
    _, damaged_foreseen = read_results((run.name, run) for run in foreseen)
    for text in [*damaged, *damaged_foreseen]:
        progress.warn(f"left out {text}")
    drive = DriveConfig(runs_dir=str(home.path.parent))
    launcher = make_launcher(drive)
    if is_run:
        return LoggedRun(home.name, drive, launcher, results), damaged
    if state.get("kind") in SEARCHES:
        return LoggedSearch(home.name, drive, launcher, results, state["kind"]), damaged
    configs = {result.name: result.config for result in results}
    kept = {result.name: result for result in results}
    kind, planned = state.get("kind", "sweep"), state.get("experiments", ())
    return Sweep(home.name, drive, launcher, configs, kind, kept=kept, planned=planned), damaged

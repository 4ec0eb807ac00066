"""`dpprof log`: log run folders that are not yet in MLflow."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpprof.cli.streams import waiting
from dpprof.config.drive import DriveConfig
from dpprof.errors import DpprofError, Interrupted, TrackingError, refuse

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.drive.calibrate import Calibrated
    from dpprof.drive.campaign import Campaign
    from dpprof.tracking.tracker import Tracker


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
def log(folders: tuple[str, ...]) -> None:
    """Log run folders to MLflow.

    Takes run folders, whole sweep folders and the folders of calibrations.

    Use it for runs that were measured on another machine, or while MLflow could not be reached. Folders that
    are already in the store are not logged again. An interrupted run is logged as far as it came.

    \b
    dpprof log runs/sweep-20260101-120000
    dpprof log runs/sweep-20260101-120000/DPSGDTrainer_tiny_bs4_seq512
    dpprof log runs/calibration-20260101-120000
    """
    from dpprof.config.device_times import TIMES
    from dpprof.record.folder import RunFolder, SweepFolder

    for name in folders:
        home = SweepFolder(name)
        ours = (RunFolder(name).config, home.state, home.path / TIMES)
        if not any(path.exists() for path in ours) and not home.runs():
            raise refuse("FOLDER", name, "a run folder, a sweep folder or the folder of a calibration")
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
    from dpprof.drive.calibrate import Calibrated
    from dpprof.drive.campaign import run_campaign
    from dpprof.pages.run_reports import write_run_reports

    run_campaign(campaign, tracker, progress, write_run_reports)
    run_ids = [*campaign.run_ids.values()] if campaign.parent is None else []
    if isinstance(campaign, Calibrated) and campaign.parent is not None and campaign.not_logged is None:
        run_ids = [campaign.parent]
    if run_ids:
        progress.say(f"{name} is run {', '.join(run_ids)}")
    elif not isinstance(campaign, Calibrated):
        progress.say(f"{name}: {len(campaign.run_ids)} of {len(campaign.results)} runs are in MLflow")
    if campaign.missing:
        progress.warn(f"{name} has no complete figures of {', '.join(campaign.missing)}")
    if campaign.interrupted:
        raise Interrupted(f"stopped while logging {name}; the same command goes on")
    return campaign.not_logged is None


def _campaign(name: str, progress: "Progress") -> tuple["Campaign", list[str]]:
    """Return the campaign that logs a run, a search, a sweep or a calibration, and what cannot be read."""
    from dpprof.drive.calibrate import Calibrated
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
    drive = DriveConfig(runs_dir=str(home.path.parent))
    here = (home.name, drive, make_launcher(drive))
    if not is_run and Calibrated.is_in(home):
        return _calibrated(Calibrated(*here), progress)
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
    if is_run or kind in SEARCHES:
        return Logged(*here, results, kind), damaged
    kept = {result.name: result for result in results}
    configs = {name: result.config for name, result in kept.items()}
    planned = state.experiments
    sweep = Sweep(*here, configs, kind, kept=kept, planned=planned, write_reports=write_sweep_reports)
    return sweep, damaged


def _calibrated(campaign: "Calibrated", progress: "Progress") -> tuple["Campaign", list[str]]:
    """Give a calibration its times; what cannot be read of them is the second."""
    from dpprof.config.device_times import DeviceTimes

    if not campaign.file.exists():
        return campaign, []
    try:
        campaign.times = DeviceTimes.read(campaign.file)
    except DpprofError as error:
        progress.warn(f"left out {error}")
        return campaign, [str(error)]
    return campaign, []

"""`dpprof log`: log run folders to MLflow that are not there yet."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.drive.sweep import Sweep


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
    from pathlib import Path

    from dpprof.cli.waiting import waiting
    from dpprof.errors import ConfigError
    from dpprof.record.folder import RunFolder, SweepFolder

    for name in folders:
        if not RunFolder(name).config.exists() and not SweepFolder(name).runs():
            raise ConfigError(f"FOLDER: got {name!r}, allowed: a run folder or a sweep folder")
    with waiting("opening MLflow's store"):
        from dpprof.cli.progress import Progress
        from dpprof.config.drive import DriveConfig
        from dpprof.drive.campaign import run_campaign
        from dpprof.drive.claim import held
        from dpprof.drive.launch.launcher import make_launcher
        from dpprof.drive.run import rendered
        from dpprof.drive.sweep import Sweep
        from dpprof.tracking.tracker import Tracker

        tracker = Tracker()
    with held(folders), Progress() as progress:
        for name in folders:
            if RunFolder(name).config.exists():
                run_id = tracker.log_result(rendered(RunFolder(name)), {})
                progress.say(f"{name} is run {run_id}")
                continue
            path = Path(name).resolve()
            results = {run.name: rendered(run) for run in SweepFolder(path).runs()}
            configs = {run: result.config for run, result in results.items()}
            state = SweepFolder(path).read_state()
            kind, planned = state.get("kind", "sweep"), state.get("experiments", ())
            drive = DriveConfig(runs_dir=str(path.parent))
            launcher = make_launcher(drive)
            sweep = Sweep(path.name, drive, launcher, configs, kind, kept=results, planned=planned)
            run_campaign(sweep, tracker, progress)
            _report(name, sweep, progress)


def _report(name: str, sweep: "Sweep", progress: "Progress") -> None:
    """Say what is in MLflow and what is not. Raises Interrupted and TrackingError."""
    from dpprof.errors import Interrupted, TrackingError

    progress.say(f"{name}: {len(sweep.run_ids)} of {len(sweep.experiments)} runs are in MLflow")
    if sweep.missing:
        progress.warn(f"{name} has no complete figures of {', '.join(sweep.missing)}")
    if sweep.interrupted:
        raise Interrupted(f"stopped while logging {name}; the same command goes on")
    if sweep.not_logged is not None:
        raise TrackingError(f"not all of {name} could be logged; the same command goes on")

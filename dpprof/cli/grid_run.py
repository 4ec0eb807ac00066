"""Run a grid, measured or estimated: progress, the final comparison, the exit code."""

from dpprof.cli.command import Asked, run
from dpprof.config.estimating import ESTIMATE
from dpprof.config.grid import Grid
from dpprof.drive.sweep import Sweep, reusable_results
from dpprof.pages.comparison.summary import view
from dpprof.pages.sweep_reports import write_sweep_reports


def run_grid(asked: Asked, grid: Grid, opening: str, workers: int = 0) -> None:
    """Run a grid and print the results. Raises the error that the command ends with, if any."""
    is_estimate = next(iter(grid.experiments.values())).is_estimate
    done, resume = "estimated" if is_estimate else "measured", grid.config.resume
    sweep = Sweep(
        grid.config.sweep_name,
        asked.drive,
        asked.launcher,
        grid.experiments,
        foreseen=grid.foreseen,
        workers=workers,
        write_reports=write_sweep_reports,
    )
    with asked.begun(sweep, ESTIMATE if is_estimate else "sweep", resume=resume) as progress:
        kept = sweep.kept = reusable_results(sweep) if resume else {}
        progress.begin_at(len(kept))
        progress.say(f"{sweep.name}: {opening}" + (f", {len(kept)} of them already {done}" if kept else ""))
        for text in sweep.damaged:
            progress.warn(text)
        progress.say(f"everything is kept in {sweep.folder.path}, and logged to MLflow")
        if not is_estimate:
            progress.warn_if_busy(sweep.launcher.machine)
        tracker = run(sweep, progress)
        if sweep.reports is not None:
            progress.show(view(sweep.reports.data))
        how = "stopped after" if sweep.interrupted else f"{done} in"
        progress.say(f"{how} {progress.duration}; kept in {sweep.folder.path}, with comparison.html")
        link = tracker.comparison_link(sweep.parent) if sweep.parent and not sweep.not_logged else None
        if link is not None:
            address, command = link
            progress.say(
                f"compare the runs in MLflow: {f'start {command}, then open' if command else ''}".rstrip()
            )
            progress.say(address)

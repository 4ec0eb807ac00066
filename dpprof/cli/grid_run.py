"""Run a grid, measured or estimated: progress, the final comparison, the exit code."""

from dpprof.cli.progress import Progress
from dpprof.drive.campaign import run_campaign
from dpprof.drive.claim import claimed
from dpprof.drive.sweep import Sweep, reusable_results
from dpprof.pages.comparison.summary import view
from dpprof.pages.run_reports import write_run_reports
from dpprof.pages.sweep_reports import WrittenReports
from dpprof.tracking.tracker import Tracker


def run_grid(sweep: Sweep, stem: str, opening: str, done: str, *, resume: bool, is_timed: bool) -> None:
    """Run a sweep and print the results. Raises the error that the command ends with, if any.

    `stem` starts the name of an unnamed sweep; `done` is a participle such as "measured".
    """
    with claimed(sweep, stem, resume=resume):
        kept = sweep.kept = reusable_results(sweep) if resume else {}
        with Progress(num_kept=len(kept)) as progress:
            progress.say(
                f"{sweep.name}: {opening}" + (f", {len(kept)} of them already {done}" if kept else "")
            )
            for text in sweep.damaged:
                progress.warn(text)
            progress.say(f"everything is kept in {sweep.folder.path}, and logged to MLflow")
            if is_timed:
                progress.warn_if_busy(sweep.launcher.machine)
            tracker = Tracker()
            run_campaign(sweep, tracker, progress, write_run_reports)
        if isinstance(sweep.reports, WrittenReports):
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
        sweep.end()

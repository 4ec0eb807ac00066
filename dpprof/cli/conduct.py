"""What measuring and estimating a grid have in common: progress, the comparison at the end, the exit code."""

from dpprof.cli.console import print_comparison
from dpprof.cli.progress import Progress
from dpprof.drive.campaign import Sweep, raise_for, reusable_results, run_sweep
from dpprof.tracking.tracker import Tracker


def conduct(planned: Sweep, opening: str, done: str, *, resume: bool, is_timed: bool) -> None:
    """Run a sweep and print what came of it. Raises what the command should end with, if anything.

    `opening` is the first line, `done` the word for what a resumed sweep has behind it. Where times count a
    busy machine is warned of.
    """
    kept = reusable_results(planned, resume=resume)
    tracker = Tracker()
    with Progress() as progress:
        progress.say(opening + (f", {len(kept)} of them already {done}" if kept else ""))
        if is_timed:
            progress.warn_if_busy()
        run_sweep(planned, kept, tracker, progress)
        if planned.comparison is not None:
            print_comparison(progress.console, planned.comparison)
        progress.say(f"kept in {planned.folder.path}, with comparison.html; compare the runs with: mlflow ui")
    raise_for(planned)

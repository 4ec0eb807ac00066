"""What measuring and estimating a grid have in common: progress, the comparison at the end, the exit code."""

from dpprof.cli.comparison_view import print_comparison
from dpprof.cli.progress import Progress
from dpprof.cli.time_left import duration
from dpprof.drive.campaign import Campaign, run_campaign
from dpprof.drive.claim import claimed
from dpprof.drive.sweep import Sweep, reusable_results
from dpprof.tracking.tracker import Tracker


def run_grid(sweep: Sweep, stem: str, opening: str, done: str, *, resume: bool, is_timed: bool) -> None:
    """Run a sweep and print what came of it. Raises what the command should end with, if anything.

    `stem` begins the name of a sweep that has none. `opening` says what runs, `done` is the participle for
    it. If times matter, it warns of a busy machine.
    """
    with claimed(sweep, stem, resume=resume):
        sweep.kept = reusable_results(sweep) if resume else {}
        _run_claimed(sweep, opening, done, is_timed=is_timed)


def _run_claimed(sweep: Sweep, opening: str, done: str, *, is_timed: bool) -> None:
    kept = sweep.kept
    with Progress(num_kept=len(kept)) as progress:
        progress.say(f"{sweep.name}: {opening}" + (f", {len(kept)} of them already {done}" if kept else ""))
        for text in sweep.damaged:
            progress.warn(text)
        progress.say(f"everything is kept in {sweep.folder.path}, and logged to MLflow")
        if is_timed:
            progress.warn_if_busy(sweep.launcher.machine)
        tracker = Tracker()
        run_campaign(sweep, tracker, progress)
    if sweep.compared is not None:
        print_comparison(progress.console, sweep.compared)
        progress.say("")
    how = "stopped after" if sweep.interrupted else f"{done} in"
    progress.say(f"{how} {duration(progress.seconds)}; kept in {sweep.folder.path}, with comparison.html")
    say_where_to_look(progress, tracker, sweep)
    sweep.end()


def say_where_to_look(progress: Progress, tracker: Tracker, campaign: Campaign) -> None:
    """The last lines: where MLflow shows the runs side by side, if it has them."""
    link = tracker.comparison_link(campaign.parent) if campaign.parent and not campaign.not_logged else None
    if link is None:
        return
    address, command = link
    progress.say(f"compare the runs in MLflow: {f'start {command}, then open' if command else ''}".rstrip())
    progress.say(address)

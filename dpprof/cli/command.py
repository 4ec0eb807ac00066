"""Declare the commands that run experiments, and run their campaigns."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import click

from dpprof.cli.options import GroupedOptions, options_of
from dpprof.cli.packages import check_packages
from dpprof.cli.streams import waiting
from dpprof.config.entry_points import FromPlanConfig
from dpprof.config.flat import parse_drive
from dpprof.config.named_trainers import load_named
from dpprof.config.options import COMMANDS
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.settings import take

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.config.experiment import ExperimentConfig
    from dpprof.drive.campaign import Campaign
    from dpprof.drive.launch.launcher import Launcher
    from dpprof.tracking.tracker import Tracker

T = TypeVar("T")


class Asked:
    """Options given to a command. `values` are those not yet parsed; `row` is a plan's that fills in others.

    `getting_ready` ends the spinner.
    """

    def __init__(self, command: str, options: Mapping[str, str | None], getting_ready: ExitStack) -> None:
        """Check the packages, parse the driving settings of a command, read the plan. Raises ConfigError."""
        check_packages()  # before anything else is imported
        from dpprof.drive.planned_row import planned_row

        given = {name: value for name, value in options.items() if value is not None}
        for name in ("trainer", "trainers"):
            load_named(given.get(name, ""))
        self.drive, self.values = parse_drive(given)
        self.row = None
        if FromPlanConfig in COMMANDS[command].classes:
            asked = self.take(FromPlanConfig)
            self.row = planned_row(asked, self.values, command) if asked.plan else None
        self.getting_ready = getting_ready

    def take(self, kind: type[T]) -> T:
        """Parse the settings of a class. Raises ConfigError."""
        found, self.values = take(kind, self.values)
        return found

    @cached_property
    def launcher(self) -> "Launcher":
        """Launcher of the experiments. Raises ConfigError if it is not available."""
        from dpprof.drive.launch.launcher import make_launcher

        return make_launcher(self.drive)

    def start_early(self, experiment: "ExperimentConfig") -> None:
        """Start the process of the first measured experiment, if it is local: both import at once."""
        from dpprof.drive.launch.local import LocalLauncher

        if isinstance(self.launcher, LocalLauncher) and experiment.parallel == NONE:
            self.launcher.start_early()

    def look_for(self, workload: str) -> None:
        """Raise ConfigError if a workload's module is missing where experiments run."""
        from dpprof.drive.workload_check import refuse_missing_module

        refuse_missing_module(workload, self.launcher)

    def at_a_time(self, experiment: "ExperimentConfig") -> int:
        """Return how many estimates like this run together."""
        from dpprof.drive.jobs import at_a_time

        return at_a_time(self.launcher, experiment, self.drive.workers)

    def on_fake_tensors(self, workers: int) -> str:
        """Say how estimates run, so many together."""
        return f"on fake tensors, {workers} at a time, {self.drive.time_limit} each"

    @contextmanager
    def begun(
        self, campaign: "Campaign", stem: str, *, resume: bool = False, is_counted: bool = True
    ) -> "Iterator[Progress]":
        """Hold a campaign's folder, show its progress, and raise the error that the command ends with.

        The body runs the campaign by `run`, with output before and after.
        """
        self.drive.check_writable()

        from dpprof.cli.progress import Progress
        from dpprof.drive.claim import claimed

        self.getting_ready.close()
        with claimed(campaign, stem, resume=resume), Progress(is_counted=is_counted) as progress:
            yield progress
            campaign.end()


def running_command(conduct: Callable[[Asked], None]) -> click.Command:
    """Make a command from a function that checks its options, loads modules and runs a campaign.

    The function's name and docstring become the command's.
    """

    name = conduct.__name__

    @click.command(name, cls=GroupedOptions, help=conduct.__doc__, params=options_of(name))
    def command(**options: str | None) -> None:
        with ExitStack() as getting_ready:
            getting_ready.enter_context(waiting("getting ready"))
            conduct(Asked(name, options, getting_ready))

    return command


def run(campaign: "Campaign", progress: "Progress") -> "Tracker":
    """Run a campaign's experiments; from then on the progress has no live lines."""
    from dpprof.drive.campaign import run_campaign
    from dpprof.pages import image
    from dpprof.pages.run_reports import write_run_reports
    from dpprof.tracking.tracker import Tracker

    tracker = Tracker()
    run_campaign(campaign, tracker, progress, write_run_reports, image.prepare)
    progress.close()
    return tracker

"""Declare the commands that run experiments: each is a function that prepares the run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dpprof.cli.options import GroupedOptions, given, options_of
from dpprof.cli.streams import waiting
from dpprof.config.drive import DriveConfig, WorkersConfig
from dpprof.config.entry_points import FromPlanConfig
from dpprof.config.flat import parse_drive
from dpprof.vocabulary.settings import take

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.config.experiment import ExperimentConfig
    from dpprof.drive.campaign import Campaign
    from dpprof.drive.launch.launcher import Launcher
    from dpprof.drive.planned_row import PlannedRow

T = TypeVar("T")


@dataclass
class Asked:
    """Options given to a command. `values` are those not yet parsed."""

    drive: DriveConfig
    values: dict[str, Any]
    num_workers: int = 0
    row: "PlannedRow | None" = None

    @classmethod
    def parse(cls, values: dict[str, object]) -> "Asked":
        """Parse the driving settings, and read the plan that fills in others. Raises ConfigError."""
        from dpprof.drive.planned_row import planned_row

        drive, rest = parse_drive(values)
        asked = cls(drive, rest)
        plan = asked.take(FromPlanConfig).plan
        asked.row = planned_row(plan) if plan else None
        asked.num_workers = asked.take(WorkersConfig).workers
        return asked

    def take(self, kind: type[T]) -> T:
        """Parse the settings of a class. Raises ConfigError."""
        found, self.values = take(kind, self.values)
        return found

    @cached_property
    def launcher(self) -> "Launcher":
        """Launcher of the experiments. Raises ConfigError if it is not available."""
        from dpprof.drive.launch.launcher import make_launcher

        return make_launcher(self.drive)

    def look_for(self, workload: str) -> None:
        """Raise ConfigError if a workload's module is missing where experiments run."""
        from dpprof.drive.workload_check import refuse_missing_module

        refuse_missing_module(workload, self.launcher)

    def at_a_time(self, experiment: "ExperimentConfig") -> int:
        """Return how many estimates like this run together."""
        from dpprof.drive.jobs import at_a_time

        return at_a_time(self.launcher, experiment, self.num_workers)

    def on_fake_tensors(self, workers: int) -> str:
        """Say how estimates run, so many together."""
        return f"on fake tensors, {workers} at a time, {self.drive.time_limit} each"


def running_command(prepare: Callable[[Asked], Callable[[], None]]) -> click.Command:
    """Make a command from a function that checks its options, loads modules and returns what to run.

    The function's name and docstring become the command's.
    """

    @click.command(prepare.__name__, cls=GroupedOptions, help=prepare.__doc__)
    @options_of(prepare.__name__)
    def command(**options: str | None) -> None:
        from dpprof.drive.requirements import check_packages

        with waiting("getting ready"):
            check_packages()
            run = prepare(Asked.parse(given(options)))
        run()

    return command


def run(
    campaign: "Campaign",
    stem: str,
    before: "Callable[[Progress], None]",
    after: "Callable[[Progress], None]",
    *,
    is_counted: bool = True,
) -> None:
    """Run a campaign with output before and after. Raises the error that the command ends with, if any."""
    from dpprof.cli.progress import Progress
    from dpprof.drive.campaign import run_campaign
    from dpprof.drive.claim import claimed
    from dpprof.pages.run_reports import write_run_reports
    from dpprof.tracking.tracker import Tracker

    with claimed(campaign, stem):
        with Progress(is_counted=is_counted) as progress:
            before(progress)
            run_campaign(campaign, Tracker(), progress, write_run_reports)
        after(progress)
        campaign.end()

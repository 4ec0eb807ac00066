"""A single experiment, with a top-level MLflow run."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.sweep import failed_results, raise_for_checks
from dpprof.errors import ExperimentsFailed
from dpprof.record.check import MODULE
from dpprof.record.figures.results import Result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Predicted


@dataclass
class SingleRun(Campaign):
    """Resolved experiment in a folder of the campaign's name, with a plan's prediction if it had one."""

    config: ExperimentConfig
    predicted: Predicted | None = None
    # Everything else shows when the workload is built, before anything is timed.
    checked = MODULE

    def experiment_to_check(self) -> ExperimentConfig:
        """The experiment."""
        return self.config

    @property
    def run_folder(self) -> RunFolder:
        """The experiment's folder."""
        return self.folder.run(self.config.run_name)

    def stages(self) -> Iterator[Stage]:
        """The experiment."""
        planned = Planned(1, 1, self.config.run_name, self.config)
        yield Stage([partial(self._measured, planned)], at_a_time=1)

    def _measured(self, planned: Planned, run_one: RunOne) -> list[Result]:
        result = run_one(planned)
        if self.predicted is None:
            return [result]
        result.folder.write_predicted(self.predicted)
        return [dataclasses.replace(result, predicted=self.predicted)]

    @property
    def to_log(self) -> Path:
        """The experiment's folder."""
        return self.run_folder.path

    def raise_if_failed(self) -> None:
        """Raise the error of a failure, except out of memory, or of the gradient check."""
        if failed_results(self.results):
            folder = self.run_folder
            seen_at = folder.log if folder.log.exists() else folder.path
            raise ExperimentsFailed(f"{self.config.run_name} failed; see {seen_at}")
        raise_for_checks(self.results)

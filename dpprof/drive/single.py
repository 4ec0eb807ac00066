"""A single experiment, whose MLflow run stands alone."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.outcomes import failed_results, raise_for_checks
from dpprof.errors import ExperimentsFailed, Interrupted
from dpprof.figures.results import Result
from dpprof.record.check import MODULE
from dpprof.record.folder import RunFolder
from dpprof.record.predicted import Predicted


@dataclass
class SingleRun(Campaign):
    """A resolved experiment in a folder of the campaign's name, and what a plan said of it, if it had one."""

    config: ExperimentConfig
    predicted: Predicted | None = None
    # The rest shows as soon as it is built, before anything is timed.
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

    def has_failed(self) -> bool:
        """Out of memory is a finding, not a fault."""
        return bool(failed_results(self.results))

    def summarize(self) -> None:
        """Its own run says all."""

    @property
    def to_log(self) -> Path:
        """The experiment's folder."""
        return self.run_folder.path

    def raise_for_end(self) -> None:
        """Stopped, failed, or a gradient check that did not pass."""
        folder = self.run_folder
        if self.interrupted or not self.results:
            raise Interrupted(f"stopped; what was measured is in {folder.path}")
        if self.has_failed():
            seen_at = folder.log if folder.log.exists() else folder.path
            raise ExperimentsFailed(f"{self.config.run_name} failed; see {seen_at}")
        raise_for_checks(self.results)

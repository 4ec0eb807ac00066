"""How the experiment of a run folder ended, read from the folder alone."""

from dataclasses import dataclass

from dpprof.config import ExperimentConfig
from dpprof.paths import RunFolder
from dpprof.record import Failure, Record

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"


@dataclass(frozen=True)
class Result:
    """One experiment's end: a record, a failure, or both if it was stopped after the clean pass."""

    folder: RunFolder
    config: ExperimentConfig
    record: Record | None
    failure: Failure | None

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def status(self) -> str:
        """MLflow's run status: FINISHED, FAILED, or KILLED when the user stopped it."""
        if self.failure is None:
            return FINISHED
        return KILLED if self.failure.kind == "interrupted" else FAILED


def read_result(folder: RunFolder) -> Result:
    """Read a run folder. A folder without an answer counts as killed.

    Raises DpprofError if it is not a run folder, or if a file in it is damaged.
    """
    record, failure = folder.read_record(), folder.read_error()
    if failure is None and (record is None or not record.clean_finished):
        ended_at = folder.config.stat().st_mtime
        failure = Failure(
            "killed", "it ended without an answer: the whole of dpprof was stopped meanwhile", at=ended_at
        )
    return Result(folder, folder.read_config(), record, failure)

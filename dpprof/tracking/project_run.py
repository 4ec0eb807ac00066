"""The run that `mlflow run` makes before it starts dpprof.

MLproject cannot name an experiment. Unless the user does (`--experiment-name`, `--experiment-id` or their
variables), MLflow makes its run in the experiment Default, where nobody looks for it, and a run cannot be
moved. So dpprof makes a run of its own in its experiment and keeps what MLflow noted of user, source and
commit. The first run points to it while dpprof works, and is deleted at the end: MLflow leaves the status of
a run alone that has ended, deleted or not, and the address of a deleted run still shows where it points to.

Whether Default was meant cannot be told from `--experiment-name Default`; `MLFLOW_EXPERIMENT_NAME=Default`
says it. A run that ends before anything was logged, as for a wrong option, stays where MLflow made it.
"""

from dataclasses import dataclass
from typing import Self

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID

from dpprof.tracking.store import NOTE_TAG

_DEFAULT_EXPERIMENT_ID = "0"
_MADE_BY_MLFLOW_RUN = "mlflow.project.entryPoint"
_OF_THE_RUN_ALONE = ("mlflow.runName", "mlflow.log-model.history")


@dataclass(frozen=True)
class ProjectRun:
    """The run that dpprof was given. `is_left` says that it logs to another one."""

    run: Run
    is_left: bool

    @classmethod
    def given(cls, client: MlflowClient) -> Self | None:
        """The run that `MLFLOW_RUN_ID` names, if it is set."""
        run_id = MLFLOW_RUN_ID.get()
        if not run_id:
            return None
        run = client.get_run(run_id)
        is_left = (
            MLFLOW_EXPERIMENT_NAME.get() is None
            and MLFLOW_EXPERIMENT_ID.get() == run.info.experiment_id == _DEFAULT_EXPERIMENT_ID
            and _MADE_BY_MLFLOW_RUN in run.data.tags
        )
        return cls(run, is_left)

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self.run.info.run_id)

    @property
    def tags(self) -> dict[str, str]:
        """What MLflow noted of user, source and commit."""
        return {name: value for name, value in self.run.data.tags.items() if name not in _OF_THE_RUN_ALONE}

    def point_to(self, other: Run, client: MlflowClient) -> None:
        """Say in its description where everything is."""
        address = f"#/experiments/{other.info.experiment_id}/runs/{other.info.run_id}"
        text = f"Everything is in [{other.info.run_name}]({address})."
        client.set_tag(self.run_id, NOTE_TAG, text)

    def delete(self, status: str, client: MlflowClient) -> None:
        """End and delete it."""
        client.set_terminated(self.run_id, status)
        client.delete_run(self.run_id)

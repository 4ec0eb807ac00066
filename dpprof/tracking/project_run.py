"""The run that `mlflow run` makes before it starts dpprof.

MLproject cannot name an experiment. Unless the user does (`--experiment-name`, `--experiment-id` or their
variables), MLflow makes its run in the experiment Default, where nobody looks for it, and a run cannot be
moved. So dpprof makes a run of its own in its experiment, with what MLflow noted of user, source and commit.
The run in Default is left: its name and its description say where everything is. It cannot be deleted:
`mlflow run` sets its status at the end, and fails if it is gone (MLflow 3.17).

`--experiment-name Default` looks the same as no name at all; `MLFLOW_EXPERIMENT_NAME=Default` is understood.
"""

from dataclasses import dataclass
from typing import Self

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID

from dpprof.tracking.store import NOTE_TAG

_DEFAULT_EXPERIMENT_ID = "0"
_MADE_BY_MLFLOW_RUN = "mlflow.project.entryPoint"
_NAME = "mlflow.runName"


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
        return {name: value for name, value in self.run.data.tags.items() if name != _NAME}

    def point_to(self, run_id: str, name: str, experiment_id: str, client: MlflowClient) -> None:
        """Say in its name and its description where everything is: in that run."""
        experiment = client.get_experiment(experiment_id).name
        link = f"[{name}](#/experiments/{experiment_id}/runs/{run_id})"
        client.set_tag(self.run_id, _NAME, f"{name} is in {experiment}")
        client.set_tag(self.run_id, NOTE_TAG, f"Everything is in {link}, in the experiment {experiment}.")

"""Log a measured loop from the user's own process."""

import os

import mlflow
from mlflow.entities import Run

from dpprof.errors import refuse
from dpprof.record.figures.results import Result
from dpprof.tracking.tracker import Tracker


def active_run(how: str) -> Run:
    """Return this thread's active run. Raises ConfigError if there is none."""
    run = mlflow.active_run()
    if run is None:
        raise refuse("mlflow", how, "only in an active MLflow run; call mlflow.start_run() before the loop")
    return run


def log_loop(result: Result, active: Run | None, *, is_nested: bool) -> str:
    """Log a loop under the active run or into it; without one, as `dpprof log` does. Returns the run's id."""
    before = dict(os.environ)
    tracker = Tracker()
    try:
        tracker.open(active)
        if active is None or is_nested:
            return tracker.log_result(result, {}, active.info.run_id if active else None)
        tracker.log_into(active.info.run_id, result)
        return str(active.info.run_id)
    finally:  # the limits on requests are dpprof's, not those of the user's own calls
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

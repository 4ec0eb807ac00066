"""What writing to an MLflow store and reading from it share: names, patience and errors."""

import getpass
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow import MlflowClient, get_tracking_uri

from dpprof.errors import DpprofError, TrackingError

PARENT_TAG = "mlflow.parentRunId"
KIND_TAG = "dpprof.kind"
RUN_TAG = "dpprof.run"
# The trainer's short name, for charts with little room.
SHORT_PARAM = "trainer_short"
NOTE_TAG = "mlflow.note.content"
# They report at length how a new store gets its tables.
_TALKATIVE = ("alembic", "mlflow.store.db.utils")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn whatever MLflow raises for an unreachable or refusing store into a TrackingError."""
    try:
        yield
    except DpprofError:
        raise
    except Exception as error:  # MLflow lets through what its stores raise: boto3, SQLAlchemy, sockets
        raise TrackingError(f"MLflow at {get_tracking_uri()} failed: {error}") from error


def store_name() -> str:
    """Where runs are written and read."""
    return str(get_tracking_uri())


def open_store() -> MlflowClient:
    """A client of the store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...)."""
    # MLflow's own defaults wait for minutes when a server is away.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient()


def user_name() -> str | None:
    """The name of whoever runs dpprof; None where the system knows none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None

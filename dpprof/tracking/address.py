"""Where a browser finds what was logged."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

_LOCAL = "http://127.0.0.1:5000"
_SQLITE = "sqlite:///"
# MLflow's own store, which its UI opens without being told.
_DEFAULT_FILE = "mlflow.db"


def runs_page(experiment_id: str, view: str) -> str:
    """The part of an address after the server's: the runs of an experiment, drawn as a view says."""
    shown = f"viewStateShareKey={view}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{experiment_id}/runs?{shown}"


def server(store: str) -> str | None:
    """The address of the UI for a store; None where none can be told, as for one at Databricks.

    For a database it is the one that `mlflow ui` has. A password in a server's address is left out.
    """
    parts = urlsplit(store)
    if parts.scheme in ("http", "https"):
        place = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    return _LOCAL if _is_database(store) else None


def ui_command(store: str) -> str | None:
    """The command that starts the UI of a store, if one has to be started."""
    if not _is_database(store):
        return None
    path = Path(store.removeprefix(_SQLITE)) if store.startswith(_SQLITE) else None
    if path is not None and path.resolve() == Path(_DEFAULT_FILE).resolve():
        return f"{_mlflow()} ui"
    # The address of another database may have a password in it.
    named = shlex.quote(store) if path is not None else '"$MLFLOW_TRACKING_URI"'
    return f"{_mlflow()} ui --backend-store-uri {named}"


def _mlflow() -> str:
    """MLflow's program as it can be typed here: where its environment is not active, with its path."""
    if shutil.which("mlflow"):
        return "mlflow"
    beside = Path(sys.executable).with_name("mlflow")
    return shlex.quote(os.path.relpath(beside)) if beside.exists() else "mlflow"


def _is_database(store: str) -> bool:
    return urlsplit(store).scheme.partition("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")

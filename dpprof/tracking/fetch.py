"""Reads results back from an MLflow store: of every run only the small files that a comparison needs."""

from pathlib import Path

from mlflow import MlflowClient, get_tracking_uri
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from dpprof.errors import ConfigError
from dpprof.record.folder import RunFolder
from dpprof.tracking.store import KIND_TAG, PARENT_TAG, RUN_TAG, open_store, translated_errors

_PAGE = 1000


def fetch(name: str, into: Path) -> tuple[str, list[tuple[str, RunFolder]]] | None:
    """The run folders of a sweep, or of one experiment, each with the full name of its run.

    `name` is a run's id, the name of a sweep, or the name of a run, full or as MLflow shows it, by itself or
    after its sweep's: `my-sweep/ghost b4 s512`. Returns the sweep's name before them, or None if the store
    has no such run. Each folder lies under `into`, named by the run's id. Raises ConfigError if several
    sweeps or runs have the name, TrackingError if the store does not answer.
    """
    if _is_missing(get_tracking_uri()):
        return None
    with translated_errors():
        client = open_store()
        run = _find(client, name)
        if run is None:
            return None
        tags = run.data.tags
        kind = tags.get(KIND_TAG, "")
        if kind in ("experiment", "estimate"):
            source = tags.get("dpprof.sweep") or tags.get("dpprof.test") or _full_name(run)
            return source, [(_full_name(run), _download(run, into))]
        folders = [(_full_name(child), _download(child, into)) for child in _children(client, run)]
        return run.info.run_name, folders


def _is_missing(store: str) -> bool:
    """Whether the store is an SQLite file that is not there: MLflow would make it, for nothing."""
    return store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).exists()


def _find(client: MlflowClient, name: str) -> Run | None:
    try:
        return client.get_run(name)
    except MlflowException:
        pass  # not an id
    found = _named(client, name)
    if not found and "/" in name:
        sweep, _, own = name.rpartition("/")
        found = [
            run
            for parent in _named(client, sweep)
            for run in _children(client, parent)
            if own in (run.info.run_name, _full_name(run))
        ]
    if len(found) > 1:
        ids = ", ".join(run.info.run_id for run in found[:5])
        raise ConfigError(
            f"{len(found)} runs in MLflow are named {name!r}; give SWEEP/NAME, or the id of one: {ids}"
        )
    return found[0] if found else None


def _named(client: MlflowClient, name: str) -> list[Run]:
    """The runs of dpprof's that have a name, short or full."""
    if "'" in name and '"' in name:
        raise ConfigError(f"{name!r} cannot be searched in MLflow, which knows no escape; give the run's id")
    quoted = f'"{name}"' if "'" in name else f"'{name}'"
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found = {
        run.info.run_id: run
        for key in ("attributes.run_name", f"tags.`{RUN_TAG}`")
        for run in _search(client, f"{key} = {quoted}", experiments)
    }
    return [run for run in found.values() if KIND_TAG in run.data.tags]


def _full_name(run: Run) -> str:
    """The name of a run's folder. Earlier versions have no tag for it, and that name in MLflow."""
    return str(run.data.tags.get(RUN_TAG, run.info.run_name))


def _children(client: MlflowClient, parent: Run) -> list[Run]:
    return _search(client, f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'", [parent.info.experiment_id])


def _search(client: MlflowClient, condition: str, experiments: list[str]) -> list[Run]:
    found: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs(experiments, condition, max_results=_PAGE, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _download(run: Run, into: Path) -> RunFolder:
    folder = RunFolder(into / run.info.run_id)
    folder.path.mkdir(parents=True, exist_ok=True)
    wanted = {path.name for path in (folder.config, folder.record, folder.error, folder.ledger)}
    # The client's own download would ask the store for the run again, for every file.
    artifacts = get_artifact_repository(run.info.artifact_uri)
    for artifact in artifacts.list_artifacts():
        if artifact.path in wanted:
            artifacts.download_artifacts(artifact.path, str(folder.path))
    if not folder.config.exists():
        raise ConfigError(
            f"run {run.info.run_id} in MLflow at {get_tracking_uri()} has no config.json: not one of dpprof's"
        )
    return folder

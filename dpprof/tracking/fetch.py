"""Fetch results from an MLflow store: only the small files of each run that a comparison needs."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mlflow import get_tracking_uri
from mlflow.entities import Run
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from dpprof.errors import ConfigError
from dpprof.record.folder import RunFolder
from dpprof.tracking.store import KIND_TAG, PARENT_TAG, RUN_TAG, Store, store_name

# Limit on runs, as each takes a few requests.
_MOST_FETCHED = 50


def fetch(name: str, into: Path) -> tuple[str, list[tuple[str, RunFolder]]] | None:
    """Fetch the run folders of a sweep or an experiment, each with the full name of its run.

    `name` is a run's id, a sweep's name or a run's name, full or as in MLflow, optionally after its sweep's:
    `my-sweep/ghost b4 s512`. Returns the sweep's name and the folders, which lie in `into` under the runs'
    ids; None if the store has no such run. Raises ConfigError if the name is ambiguous, TrackingError if the
    store does not answer.
    """
    store = _opened()
    run = _find(store, name) if store is not None else None
    if store is None or run is None:
        return None
    tags = run.data.tags
    if tags.get(KIND_TAG) in ("experiment", "estimate"):
        source = tags.get("dpprof.sweep") or tags.get("dpprof.test") or _full_name(run)
        return source, [(_full_name(run), _download(store, run, into))]
    folders = [(_full_name(child), _download(store, child, into)) for child in _children(store, run)]
    return run.info.run_name, folders


def fetch_finished(params: Mapping[str, object], into: Path) -> dict[str, RunFolder]:
    """Fetch the newest finished, measured runs with these params, by `SWEEP/RUN`. Raises TrackingError."""
    store = _opened()
    if store is None:
        return {}
    wanted = ["attributes.status = 'FINISHED'", f"tags.`{KIND_TAG}` = 'experiment'"]
    wanted += [f"params.`{name}` = '{value}'" for name, value in params.items() if "'" not in str(value)]
    runs = sorted(store.search(" and ".join(wanted)), key=lambda run: -run.info.start_time)
    found: dict[str, RunFolder] = {}
    for run in runs[:_MOST_FETCHED]:
        with suppress(ConfigError):  # not one of dpprof's
            sweep = run.data.tags.get("dpprof.sweep", run.info.run_id)
            found.setdefault(f"{sweep}/{_full_name(run)}", _download(store, run, into))
    return found


def _opened() -> Store | None:
    """Open the store; None if it is an SQLite file that is missing, as opening it would create it."""
    store = get_tracking_uri()
    if store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).exists():
        return None
    return Store().open()


def _find(store: Store, name: str) -> Run | None:
    if (run := store.run(name)) is not None:
        return run
    found = _named(store, name)
    if not found and "/" in name:
        sweep, _, own = name.rpartition("/")
        found = [
            run
            for parent in _named(store, sweep)
            for run in _children(store, parent)
            if own in (run.info.run_name, _full_name(run))
        ]
    if len(found) > 1:
        ids = ", ".join(run.info.run_id for run in found[:5])
        raise ConfigError(
            f"{len(found)} runs in MLflow are named {name!r}; give SWEEP/NAME, or the id of one: {ids}"
        )
    return found[0] if found else None


def _named(store: Store, name: str) -> list[Run]:
    if "'" in name and '"' in name:
        raise ConfigError(f"{name!r} cannot be searched in MLflow, which knows no escape; give the run's id")
    quoted = f'"{name}"' if "'" in name else f"'{name}'"
    keys = "attributes.run_name", f"tags.`{RUN_TAG}`"
    found = {run.info.run_id: run for key in keys for run in store.search(f"{key} = {quoted}")}
    return [run for run in found.values() if KIND_TAG in run.data.tags]


def _full_name(run: Run) -> str:
    """Return the folder's name of a run. Earlier versions have no tag and use it as the run's name."""
    return str(run.data.tags.get(RUN_TAG, run.info.run_name))


def _children(store: Store, parent: Run) -> list[Run]:
    return store.search(f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'", [parent.info.experiment_id])


def _download(store: Store, run: Run, into: Path) -> RunFolder:
    folder = RunFolder(into / run.info.run_id)
    folder.path.mkdir(parents=True, exist_ok=True)
    wanted = {path.name for path in (folder.config, folder.record, folder.error, folder.ledger)}
    # The client's own download requests the run again for every file.
    artifacts = get_artifact_repository(run.info.artifact_uri)
    for artifact in store.ask(artifacts.list_artifacts):
        path = folder.path / artifact.path
        if artifact.path not in wanted or path.exists():
            continue
        if isinstance(artifacts, LocalArtifactRepository):
            path.symlink_to(artifacts.download_artifacts(artifact.path))
        else:
            store.ask(artifacts.download_artifacts, artifact.path, str(folder.path))
    if not folder.config.exists():
        raise ConfigError(
            f"run {run.info.run_id} in MLflow at {store_name()} has no config.json: not one of dpprof's"
        )
    return folder

"""Whether the run in MLflow that a folder's link names holds the folder.

A link holds for the folder that it was written for, and for a run that says so too: a folder that was copied
with its link has another path and another inode, and its run belongs to the original.
"""

from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Run

from dpprof.record.link import Link
from dpprof.record.redacted import redacted
from dpprof.tracking.store import INVALID, NO_SUCH_RUN, RUN_TAG, Refused, Store, store_name

LINK_TAG = "dpprof.link_id"
# The tags that name what a run is part of.
_GROUPS = ("dpprof.sweep", "dpprof.estimate", "dpprof.test", "dpprof.fit", "dpprof.plan")


def held_by(link: Link | None, folder: Path, store: Store, experiment_id: str) -> Run | None:
    """The run that holds a folder, if its link says so and the run too. Raises TrackingError."""
    if link is None or not _is_of(link, folder):
        return None
    if link.run_id is None:  # whoever wrote it did not get as far as to know the run
        return next(iter(store.search(_condition(link), [experiment_id])), None)
    try:
        run = store.ask(store.client.get_run, link.run_id)
    except Refused as error:
        if error.code in (NO_SUCH_RUN, INVALID):
            return None
        raise
    return run if run.info.lifecycle_stage != "deleted" and _is_told_by(link, run, folder) else None


def _is_of(link: Link, folder: Path) -> bool:
    """Whether a link was written for this folder, which may have been moved."""
    if not link.link_id:
        return redacted(link.tracking_uri) == store_name()
    place = folder.resolve()
    return link.path == str(place) or link.inode == place.stat().st_ino


def _is_told_by(link: Link, run: Run, folder: Path) -> bool:
    """Whether the run says so too: by the link's id; of earlier versions by the names of the folder, and
    of the one that it lies in if the run is part of something.
    """
    tags = run.data.tags
    if link.link_id:
        return bool(tags.get(LINK_TAG) == link.link_id)
    groups = {tags[name] for name in _GROUPS if name in tags}
    if RUN_TAG not in tags and groups == {folder.name}:  # the parent of a sweep
        return True
    named = tags.get(RUN_TAG, run.info.run_name)
    return named == folder.name and (not groups or folder.resolve().parent.name in groups)


def create_linked(
    store: Store, experiment_id: str, link: Link, name: str, tags: Mapping[str, str], start_ms: int | None
) -> Run:
    """A new run that bears the link's id from the start. Raises TrackingError.

    An answer may be lost: before the run is made again, it is looked for.
    """
    client = store.client
    is_repeated = False

    def create() -> Run:
        nonlocal is_repeated
        found = client.search_runs([experiment_id], _condition(link)) if is_repeated else []
        is_repeated = True
        all_tags = {**tags, LINK_TAG: link.link_id}
        return found[0] if found else client.create_run(experiment_id, start_ms, all_tags, run_name=name)

    return store.ask(create)


def delete(run: Run, store: Store) -> None:
    """Delete a run. Raises TrackingError."""

    def delete_once() -> None:  # MLflow refuses to delete a run again, as after a lost answer
        if store.client.get_run(run.info.run_id).info.lifecycle_stage != "deleted":
            store.client.delete_run(run.info.run_id)

    store.ask(delete_once)


def _condition(link: Link) -> str:
    return f"tags.`{LINK_TAG}` = '{link.link_id}'"

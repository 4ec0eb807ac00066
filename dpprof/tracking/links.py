"""Which run in MLflow holds a folder.

A link holds for the folder that it was written for, and for a run that says so too: a folder that was copied
with its link has another path and another inode, and its run belongs to the original.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self
from uuid import uuid4

from mlflow.entities import Run

from dpprof.record.folder import write_text
from dpprof.tracking.redacted import redacted
from dpprof.tracking.store import INVALID, NO_SUCH_RUN, RUN_TAG, Refused, Store, store_name

LINK_TAG = "dpprof.link_id"
# The tags that name what a run is part of.
_GROUPS = ("dpprof.sweep", "dpprof.estimate", "dpprof.test", "dpprof.fit")


@dataclass(frozen=True)
class Link:
    """From a folder to a run. Links of earlier versions have no `link_id`, and no place."""

    run_id: str | None
    tracking_uri: str
    complete: bool
    link_id: str = ""
    path: str = ""
    inode: int = 0

    @classmethod
    def new(cls, folder: Path) -> Self:
        """A link of a folder that no run holds so far."""
        place = folder.resolve()
        return cls(None, store_name(), False, uuid4().hex, str(place), place.stat().st_ino)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The link that a file holds; None if there is none, or it is damaged."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            link = cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return link if link._is_typed() else None

    def _is_typed(self) -> bool:
        texts = (self.tracking_uri, self.link_id, self.path)
        return (
            isinstance(self.run_id, str | None)
            and all(isinstance(text, str) for text in texts)
            and isinstance(self.complete, bool)
            and isinstance(self.inode, int)
        )

    def write(self, path: Path) -> None:
        """Write it into a file."""
        write_text(path, json.dumps(asdict(self)))

    def to(self, run_id: str) -> Self:
        """The link with its run."""
        return replace(self, run_id=run_id)

    def is_of(self, folder: Path) -> bool:
        """Whether it was written for this folder, which may have been moved."""
        if not self.link_id:
            return redacted(self.tracking_uri) == store_name()
        place = folder.resolve()
        return self.path == str(place) or self.inode == place.stat().st_ino

    def is_told_by(self, run: Run, folder: Path) -> bool:
        """Whether the run says so too: by the link's id; of earlier versions by the names of the folder, and
        of the one that it lies in if the run is part of something.
        """
        tags = run.data.tags
        if self.link_id:
            return bool(tags.get(LINK_TAG) == self.link_id)
        groups = {tags[name] for name in _GROUPS if name in tags}
        if RUN_TAG not in tags and groups == {folder.name}:  # the parent of a sweep
            return True
        named = tags.get(RUN_TAG, run.info.run_name)
        return named == folder.name and (not groups or folder.resolve().parent.name in groups)


def held_by(link: Link | None, folder: Path, store: Store, experiment_id: str) -> Run | None:
    """The run that holds a folder, if its link says so and the run too. Raises TrackingError."""
    if link is None or not link.is_of(folder):
        return None
    if link.run_id is None:  # whoever wrote it did not get as far as to know the run
        return next(iter(store.search(_condition(link), [experiment_id])), None)
    try:
        run = store.ask(store.client.get_run, link.run_id)
    except Refused as error:
        if error.code in (NO_SUCH_RUN, INVALID):
            return None
        raise
    return run if run.info.lifecycle_stage != "deleted" and link.is_told_by(run, folder) else None


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

"""Which run in MLflow holds a folder, as its file `mlflow.json` says."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self
from uuid import uuid4

from dpprof.json_files import naming, read_json, typed
from dpprof.record.files import write_text
from dpprof.record.redacted import redacted


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
    def new(cls, folder: Path, tracking_uri: str) -> Self:
        """A link of a folder that no run holds so far."""
        place = folder.resolve()
        return cls(None, tracking_uri, False, uuid4().hex, str(place), place.stat().st_ino)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The link that a file holds; None if there is no file. Raises DpprofError if it is damaged."""
        if not path.exists():
            return None
        data = read_json(path)
        with naming(path):
            return typed(cls, data)

    def write(self, path: Path) -> None:
        """Write it into a file, without the password that links of earlier versions may have."""
        write_text(path, json.dumps(asdict(replace(self, tracking_uri=redacted(self.tracking_uri)))))

    def to(self, run_id: str) -> Self:
        """The link with its run."""
        return replace(self, run_id=run_id)

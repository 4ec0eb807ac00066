"""Link from a folder to its MLflow run, kept in `mlflow.json`."""

import json
import re
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self
from uuid import uuid4

from dpprof.json_files import read_if_there, typed
from dpprof.record.files import write_text

# Up to the last @ before the path: a password may contain an unescaped one.
_USER = re.compile(r"(?<=://)[^\s/'\"]*@")
_SECRET = re.compile(r"(?i)([\w-]*(?:password|passwd|pwd|token|secret)[\w-]*=)[^&\s'\"]+")


def redacted(text: str) -> str:
    """Remove users and passwords of URLs and secrets in their queries from a text."""
    return _SECRET.sub(r"\1***", _USER.sub("", text))


@dataclass(frozen=True)
class Link:
    """Link from a folder to a run. Links of earlier versions have no `link_id` and no `path`."""

    run_id: str | None
    tracking_uri: str
    complete: bool
    link_id: str = ""
    path: str = ""
    inode: int = 0

    @classmethod
    def new(cls, folder: Path, tracking_uri: str) -> Self:
        """Return a link for a folder that has no run yet."""
        place = folder.resolve()
        return cls(None, tracking_uri, False, uuid4().hex, str(place), place.stat().st_ino)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a link; None if there is no file. Raises DpprofError if it is damaged."""
        return read_if_there(path, partial(typed, cls))

    def write(self, path: Path) -> None:
        """Write the link, without a password that links of earlier versions may have."""
        write_text(path, json.dumps(asdict(replace(self, tracking_uri=redacted(self.tracking_uri)))))

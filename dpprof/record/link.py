"""Link from a folder to its MLflow run, kept in `mlflow.json`."""

import json
import re
from dataclasses import asdict, dataclass
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
    """Link from a folder to a run, which has the tag `dpprof.link_id` with this id."""

    run_id: str | None
    tracking_uri: str
    complete: bool
    link_id: str

    @classmethod
    def new(cls, tracking_uri: str) -> Self:
        """Return a link for a folder that has no run yet."""
        return cls(None, tracking_uri, False, uuid4().hex)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a link; None if there is no file. Raises DpprofError if it is damaged."""
        # 0.3.0.dev0 noted where the folder lay.
        return read_if_there(path, partial(typed, cls, obsolete=("path", "inode")))

    def write(self, path: Path) -> None:
        """Write the link."""
        write_text(path, json.dumps(asdict(self)))

"""A report of a run: a file in its folder, with a version."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpprof.pages import html
from dpprof.pages.document import Document
from dpprof.record.figures.results import Result
from dpprof.record.files import write_text


@dataclass(frozen=True)
class Report:
    """A report, by its (first) file's name in the folder, as in `record/folder.py`.

    `write` returns the written files: none if there is nothing to show. Raise `version` with every visible
    change.
    """

    file: str
    version: int
    write: Callable[[Result], list[Path]]


def page_report(file: str, version: int, page: Callable[[Result], Document | None]) -> Report:
    """Return a report that writes a page if the run has something to show on it."""

    def write(result: Result) -> list[Path]:
        document = page(result)
        if document is None:
            return []
        path = result.folder.path / file
        write_text(path, html.page(document))
        return [path]

    return Report(file, version, write)

"""Reports of one experiment in its run folder.

The folder keeps their versions, so that folders of an earlier dpprof get new pages.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dpprof.errors import DpprofError
from dpprof.json_files import read_json, typed
from dpprof.pages import html, verify
from dpprof.pages.document import Document
from dpprof.pages.formats.run import write_format, write_memory_tracks
from dpprof.pages.roofline.page import run_roofline
from dpprof.pages.tensorboard import write_scalars
from dpprof.pages.timeline import write_timeline
from dpprof.record.figures.results import Result
from dpprof.record.files import write_text
from dpprof.record.folder import RunFolder


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


RUN_REPORTS: tuple[Report, ...] = (
    Report("memory_timeline.html", version=7, write=write_timeline),
    page_report("roofline.html", version=4, page=run_roofline),
    page_report("verify.html", version=2, page=verify.page),
    Report("memory_snapshot.pickle", version=1, write=partial(write_format, "snapshot")),
    Report("memory_trace.json.gz", version=1, write=write_memory_tracks),
    Report("peak_memory.collapsed", version=2, write=partial(write_format, "collapsed")),
    Report("tensorboard", version=2, write=write_scalars),
)


@dataclass(frozen=True)
class _Written:
    version: int
    files: list[str]


def write_run_reports(result: Result) -> None:
    """Write a run folder's missing or outdated reports. Raises DpprofError if a source file is damaged."""
    folder = result.folder
    known, found = _read(folder), {}
    for report in RUN_REPORTS:
        written = known.get(report.file)
        there = written is not None and all((folder.path / name).exists() for name in written.files)
        if written is None or written.version != report.version or not there:
            files = [path.relative_to(folder.path).as_posix() for path in report.write(result)]
            written = _Written(report.version, files)
        found[report.file] = written
    if found != known:
        versions = {name: asdict(written) for name, written in found.items()}
        write_text(folder.reports, json.dumps(versions, indent=1))


def _read(folder: RunFolder) -> dict[str, _Written]:
    try:
        return typed(dict[str, _Written], read_json(folder.reports))
    except DpprofError:
        return {}

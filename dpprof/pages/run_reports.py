"""Reports of one experiment in its run folder.

The folder keeps their versions, so that folders of an earlier dpprof get new pages.
"""

import json
import pkgutil
from dataclasses import asdict, dataclass
from importlib import import_module

from dpprof.errors import DpprofError
from dpprof.json_files import read_json, typed
from dpprof.pages import reports
from dpprof.pages.report import Report
from dpprof.record.figures.results import Result
from dpprof.record.files import write_text
from dpprof.record.folder import RunFolder


def _found() -> list[Report]:
    modules = [f"{reports.__name__}.{module.name}" for module in pkgutil.iter_modules(reports.__path__)]
    return [report for name in sorted(modules) for report in import_module(name).REPORTS]


RUN_REPORTS = _found()


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

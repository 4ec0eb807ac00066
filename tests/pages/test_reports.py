"""Which reports are written again, and that what they show is computed once."""

import dataclasses
import os
from pathlib import Path

import example_ledger
import pytest
from example_results import rendered

from dpprof.pages import run_reports
from dpprof.pages.run_reports import RUN_REPORTS
from dpprof.record.folder import RunFolder

LONG_AGO = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A rendered run folder, all files of which are old."""
    made = example_ledger.folder(tmp_path / "run", example_ledger.record(), example_ledger.timeline())
    rendered(made)
    for path in made.path.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return made


def is_new(path: Path) -> bool:
    return path.stat().st_mtime > LONG_AGO


def events(folder: RunFolder) -> list[Path]:
    return list(folder.tensorboard.glob("events*"))


def test_what_is_current_is_left_alone(folder: RunFolder) -> None:
    rendered(folder)
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert {folder.timeline_page, folder.timeline_image, *events(folder)} < set(files)
    assert [path for path in files if is_new(path)] == []


def test_pages_without_a_version_or_that_were_deleted_are_written_again(folder: RunFolder) -> None:
    folder.reports.unlink()
    folder.timeline_page.unlink()
    rendered(folder)
    assert folder.timeline_page.exists()
    assert is_new(folder.timeline_image)
    (event,) = events(folder)
    assert is_new(event), "in place of the old one"


def test_a_new_version_of_a_page_replaces_the_old_one(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = [
        dataclasses.replace(report, version=report.version + (report.file == "memory_timeline.html"))
        for report in RUN_REPORTS
    ]
    monkeypatch.setattr(run_reports, "RUN_REPORTS", newer)
    rendered(folder)
    assert is_new(folder.timeline_page)
    assert not is_new(events(folder)[0]), "of the same version"
    os.utime(folder.timeline_page, (LONG_AGO, LONG_AGO))
    rendered(folder)
    assert not is_new(folder.timeline_page)


def test_versions_that_cannot_be_read_count_as_none(folder: RunFolder) -> None:
    for damaged in ("{", "[]", '{"memory_timeline.html": 1}', '{"memory_timeline.html": {"version": 1}}'):
        os.utime(folder.timeline_page, (LONG_AGO, LONG_AGO))
        folder.reports.write_text(damaged)
        rendered(folder)
        assert is_new(folder.timeline_page)


def test_versions_go_with_a_folder_and_not_to_mlflow(folder: RunFolder) -> None:
    assert folder.reports.exists()
    assert folder.reports not in folder.artifacts().files
    folder.clear_answers()
    assert not folder.reports.exists()

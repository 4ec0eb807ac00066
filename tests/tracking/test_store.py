"""A new SQLite store that several processes open at once."""

import multiprocessing
from pathlib import Path

import mlflow
import pytest

from dpprof.record.link import redacted
from dpprof.tracking.tracker import Tracker


def _open(uri: str, barrier: "multiprocessing.synchronize.Barrier") -> None:
    mlflow.set_tracking_uri(uri)
    barrier.wait()
    Tracker().open()


def test_several_processes_can_open_a_new_store_at_once(tmp_path: Path) -> None:
    forked = multiprocessing.get_context("fork")
    barrier = forked.Barrier(4)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    processes = [forked.Process(target=_open, args=(uri, barrier)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("at http://me:pa@ss@host:5000/x: refused", "at http://host:5000/x: refused"),
        (
            "postgresql+psycopg2://me@host/db?user=me&password=a%20b",
            "postgresql+psycopg2://host/db?user=me&password=***",
        ),
        ("'mysql://me:secret@host/db'; mail me@example.org", "'mysql://host/db'; mail me@example.org"),
        ("sqlite:///runs@home/mlflow.db", "sqlite:///runs@home/mlflow.db"),
    ],
)
def test_secrets_are_left_out(said: str, expected: str) -> None:
    assert redacted(said) == expected

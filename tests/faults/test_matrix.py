"""The quick half of the fault matrix, and two sweeps at once; `matrix.py` and `at_once.py` do the whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from at_once import together
from bench import Bench, open_bench
from disturbances import QUICK, Row


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_bench(quick=True) as opened:
        yield opened


@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.name)
def test_nothing_is_lost_or_left(bench: Bench, row: Row) -> None:
    outcome = bench.try_row(row)
    assert outcome.problems == [], outcome


def test_two_sweeps_at_once_keep_their_own_figures(tmp_path: Path) -> None:
    assert together(tmp_path, "sweep", 2) == []

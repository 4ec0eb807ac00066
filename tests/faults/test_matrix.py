"""Faults at every stage of a sweep: nothing is lost, mixed or left running.

Every row is a sweep of two tiny cells in a process of its own, which logs through a proxy to a real `mlflow
server` on SQLite. At one stage it meets one fault: a signal to the driver or to the measuring process, or a
store that is down, hangs, refuses, loses an answer, is killed or has no room. Then the store is healed, and
the sweep is resumed, or logged with `dpprof log` if all was measured. What must hold is in `after.py`:

- when the disturbed sweep has ended: no process left, no traceback, every finished pass's figures in the
  folder, and no run RUNNING where the driver could still close it;
- in the end: the same runs, metrics, params and artifacts in MLflow as an undisturbed sweep has, each once,
  all FINISHED, with the figures of the folder.

`pytest -m exhaustive -n 2 --dist load tests/faults` tries all; a row takes about 25 seconds on 2 idle cores.
"""

from collections.abc import Iterator

import pytest
from bench import Bench
from disturbances import Row, all_rows


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("faults"))
    yield made
    made.server.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.name)
def test_nothing_is_lost_mixed_or_left(bench: Bench, row: Row) -> None:
    assert bench.problems(row) == []

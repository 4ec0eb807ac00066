"""A sweep beside busy processes, as many as there are processors, which the test starts and ends."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import Run, fine

# Ends by itself too, should the test be killed.
_BUSY = "import time\nend = time.monotonic() + 240\nwhile time.monotonic() < end: pass"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.alone
@pytest.mark.usefixtures("busy_machine")
def test_beside_busy_processes_there_is_no_award_for_time_no_interval_and_the_advice(called: Run) -> None:
    grid = ["--model-sizes", "tiny", "--trainers", "standard,flat,fast"]
    grid += ["--batch-sizes", "2", "--seq-lens", "16"]
    # So many steps that they cannot all find a processor for themselves.
    many = ["--measured-steps", "150", "--passes", "clean,memory", "--launcher", "in_process"]
    ended = fine(called("sweep", *grid, *many))
    found = ended.stdout
    assert not re.search(
        r"interval \d|takes the least time|[Tt]rain with|start with|cannot be told apart", found
    ), found
    assert re.search(r"Of the DP trainers, \w+ needs the least memory", found), "memory depends on no load"
    assert re.search(r"^flat .* [\d.]+ \(disturbed\) ", found, flags=re.MULTILINE)
    assert "x the step" not in found, "what flat adds has no time"
    assert re.search(
        r"warning: Disturbed while timed: \d of 3 runs .*\. Repeat these runs when the machine is quiet",
        found,
    )

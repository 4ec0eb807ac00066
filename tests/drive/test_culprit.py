"""Which rank hung, by the stacks that ranks left."""

from pathlib import Path

import pytest

from dpprof.drive.culprit import culprit
from dpprof.drive.launch.job import Exit
from dpprof.record.folder import RunFolder

_ENDED = Exit(-15, timed_out=True)
_WAITS = 'Thread 0x1 (most recent call first):\n  File "/x/torch/distributed/c10d.py", line 9 in wait\n'
_COMPUTES = 'Thread 0x1 (most recent call first):\n  File "/x/model.py", line 30 in forward\n'


@pytest.mark.parametrize(
    ("stacks", "on_cuda", "expected"),
    [
        ([_WAITS, _COMPUTES], False, 1),
        ([_COMPUTES, _COMPUTES], False, None),
        ([_WAITS, _COMPUTES], True, None),
        ([_WAITS], True, 0),
    ],
)
def test_who_hung(stacks: list[str], on_cuda: bool, expected: int | None, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for rank, text in enumerate(stacks):
        folder.rank(rank).path.mkdir(parents=True, exist_ok=True)
        folder.rank(rank).stacks.write_text(text)
    assert culprit(folder, Exit.of_ranks([_ENDED] * len(stacks)), on_cuda=on_cuda) == expected

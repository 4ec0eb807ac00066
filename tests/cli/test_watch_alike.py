"""Scripts under `dpprof watch` do what they do without, to their end and to the end of what they make."""

import signal
from pathlib import Path

import pytest
from forked import fork
from watched import STEP, record_in, watch

from dpprof.record.record import PassStatus


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("sys.exit(0.0)", 1, "0.0\n"),
        ("sys.exit([1])", 1, "[1]\n"),
        ("sys.stdout.close()", 0, ""),
        ("os.kill(os.getpid(), __import__('signal').SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_an_odd_end_is_as_without(ending: str, code: int, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STEP + f"for _ in range(20): step()\n{ending}\n")
    done = watch("mine.py", cwd=tmp_path)
    assert (fork("mine.py", cwd=tmp_path).returncode, done.returncode) == (code, code)
    assert done.stderr.startswith(says) or f"\n{says}" in done.stderr
    assert "internal error" not in done.stderr
    assert record_in(tmp_path).passes["clean"].status is PassStatus.FINISHED


def test_errors_of_a_module_are_told_as_without(tmp_path: Path) -> None:
    """With the error that they come from, and without a frame of dpprof's."""
    script = "try:\n    {}['key']\nexcept KeyError as error:\n    raise ValueError('bad luck') from error\n"
    for name, text in (("mine", script), ("wrong", "x = = 1\n")):
        (tmp_path / f"{name}.py").write_text(text)
        watched, alone = watch(f"{name}.py", cwd=tmp_path), fork(f"{name}.py", cwd=tmp_path)
        told = alone.stderr.replace(str(tmp_path) + "/", "")
        assert watched.stderr.replace(str(tmp_path) + "/", "").startswith(told)
    as_module = watch("-m", "mine", cwd=tmp_path)
    assert "line 2, in <module>" in as_module.stderr
    assert "dpprof/" not in as_module.stderr.partition("nothing was measured")[0]


def test_the_model_is_the_one_that_is_trained_not_a_larger_teacher(tmp_path: Path) -> None:
    script = """
import torch
from torch import nn
teacher = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10)))
class Student(nn.Sequential): pass
student = Student(nn.Linear(8, 4), nn.Linear(4, 8))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(30):
    values = torch.randn(4, 8)
    with torch.no_grad():
        wanted = teacher(values)
    optimizer.zero_grad()
    (student(values) - wanted).square().mean().backward()
    optimizer.step()
"""
    (tmp_path / "mine.py").write_text(script)
    done = watch("--measured-steps", 4, "mine.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path)
    assert record.num_parameters == 8 * 4 + 4 + 4 * 8 + 8
    assert all(group.trains and group.moved for group in record.parameters)
    said = " ".join(done.stdout.split())
    assert "several models were called: Student is taken for the model, and what Sequential holds" in said

"""`dpprof watch`, on the scripts of examples/own_loops and on scripts that end in their own way."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Ended, errors_of, fine, lay_out_store, runs_of
from example_runs import known
from forked import fork
from watched import STEP, record_in, watch

from dpprof.errors import shown
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassStatus, Record

EXAMPLES = Path(__file__).parents[2] / "examples" / "own_loops"
PLAIN = {"zero_grad", "forward", "backward", "optimizer_step"}
FLAT = PLAIN | {"clip", "noise"}
GHOST = FLAT - {"backward"} | {"backward_norms", "backward_weighted"}
OPAKE = FLAT - {"zero_grad", "optimizer_step"}
KEEPS_ZEROS, LATE = "call zero_grad(set_to_none=True)", "call zero_grad() before the model"
# Scripts with their samples per step (none if Poisson-sampled), their phases, the libraries that they need
# beside those that dpprof needs, and what is found of them: what their libraries do by default.
LOOPS: list[tuple[str, int | None, set[str], str, str]] = [
    ("plain", 32, PLAIN, "", ""),
    ("accumulation", 64, PLAIN, "", ""),
    ("opacus_flat", None, FLAT, "", KEEPS_ZEROS),
    ("opacus_virtual_steps", None, FLAT, "", KEEPS_ZEROS),
    ("opacus_ghost", None, GHOST, "", KEEPS_ZEROS),
    ("hugging_face_trainer", 4, PLAIN, "transformers accelerate", ""),
    ("trl_sft", 4, PLAIN, "trl datasets", ""),
    ("lightning_module", 32, PLAIN, "lightning", LATE),
    ("accelerate_loop", 32, PLAIN, "accelerate", ""),
    ("opake_dpsgd", None, OPAKE, "opake", "the peak counts"),
    ("gpt2_lora_opacus", None, FLAT, "transformers peft", ""),
]
# One of each kind of loop; the others are exhaustive. The tests of `--target` run a `transformers.Trainer`.
SAMPLE = {"plain", "opacus_virtual_steps", "opacus_ghost", "lightning_module", "accelerate_loop"}


def watch_text(folder: Path, text: str, *options: object) -> Ended:
    """Watch a script of this text."""
    (folder / "mine.py").write_text(text)
    return watch(*options, "mine.py", cwd=folder)


def finished(record: Record) -> bool:
    """Whether all passes are."""
    return {outcome.status for outcome in record.passes.values()} == {PassStatus.FINISHED}


@pytest.mark.parametrize(
    ("script", "batch_size", "phases", "libraries", "finding"),
    [pytest.param(*case, marks=() if case[0] in SAMPLE else pytest.mark.exhaustive) for case in LOOPS],
)
def test_a_script_does_what_it_does_without(
    script: str, batch_size: int | None, phases: set[str], libraries: str, finding: str, tmp_path: Path
) -> None:
    for library in libraries.split():
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    path = EXAMPLES / f"{script}.py"
    with ThreadPoolExecutor(2) as at_once:
        runs = (
            at_once.submit(fork, "-W", "ignore", path, cwd=tmp_path),
            at_once.submit(watch, "--measured-steps", 4, path, cwd=tmp_path),
        )
    alone, watched = (fine(run.result()) for run in runs)
    assert alone.stdout.splitlines()[-1] in watched.stdout.splitlines()
    record = record_in(tmp_path)
    assert finished(record)
    assert record.phase_s.keys() == phases
    assert len(record.warnings) == bool(finding)
    assert all(finding in warning for warning in record.warnings)
    if batch_size is None:  # Poisson-sampled: each step, and each pass, has a batch of its own
        assert len(set(record.step_samples)) > 1
        return
    assert (record.samples_per_step, record.step_samples) == (batch_size, [])
    assert known(record.ledger).peak == pytest.approx(known(record.memory.peak_allocated), rel=0.001)


def test_a_module_is_watched_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STEP + "for _ in range(40): step()\nprint(sys.argv[1:])\n")
    done = watch("--name", "other", "-m", "mine", "--measured-steps", "7", cwd=tmp_path)
    assert "['--measured-steps', '7']" in done.stdout
    assert record_in(tmp_path).config["workload"] == "loop:other"


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("sys.exit(7)", 7, ""),
        ('sys.exit("no more")', 1, "no more\n"),
        ("sys.exit(0.0)", 1, "0.0\n"),
        ("sys.exit([1])", 1, "[1]\n"),
        ('raise ValueError("bad luck")', 1, '    raise ValueError("bad luck")\n'),
        ("sys.stdout.close()", 0, ""),
        ("os._exit(5)", 5, ""),
        ("os.kill(os.getpid(), __import__('signal').SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_the_scripts_end_is_its_own(ending: str, code: int, says: str, tmp_path: Path) -> None:
    done = watch_text(tmp_path, STEP + f"for _ in range(20): step()\n{ending}\n")
    assert (fork("mine.py", cwd=tmp_path).returncode, done.returncode) == (code, code)
    assert f"\n{says}" in f"\n{done.stderr}"
    assert "internal error" not in done.stderr
    assert "dpprof/" not in done.stderr.partition("Traceback")[2].partition("everything is kept")[0]
    record = record_in(tmp_path)
    assert len(record.step_s) == 10
    assert record.passes["clean"].status is PassStatus.FINISHED
    if not ending.startswith("os."):
        assert record.passes["trace"].status is PassStatus.SKIPPED


def test_errors_of_a_module_are_told_as_without(tmp_path: Path) -> None:
    """With the error that they come from, and without a frame of dpprof's."""
    script = "try:\n    {}['key']\nexcept KeyError as error:\n    raise ValueError('bad luck') from error\n"
    for text in ("x = = 1\n", script):
        watched = watch_text(tmp_path, text)
        told = fork("mine.py", cwd=tmp_path).stderr.replace(str(tmp_path) + "/", "")
        assert watched.stderr.replace(str(tmp_path) + "/", "").startswith(told)
    as_module = watch("-m", "mine", cwd=tmp_path)
    assert "line 2, in <module>" in as_module.stderr
    assert "dpprof/" not in as_module.stderr.partition("nothing was measured")[0]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        STEP + "for _ in range(20): step()\nopen('ready', 'w').close()\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "dpprof", "watch", "mine.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        while not (tmp_path / "ready").exists():
            assert running.poll() is None
        os.kill(running.pid, signal.SIGINT)
        text, _ = running.communicate()
    assert running.returncode == 130
    assert b"everything is kept in runs" in text
    assert record_in(tmp_path).passes["ledger"].status is PassStatus.FINISHED


def test_a_loop_without_end_is_ended_on_request(tmp_path: Path) -> None:
    loop = "while True:\n    try:\n        step()\n    except Exception:\n        pass\n"
    fine(watch_text(tmp_path, STEP + loop, "--end", "true"))
    assert finished(record_in(tmp_path))


def test_what_cannot_be_watched_is_said(tmp_path: Path) -> None:
    done = watch_text(tmp_path, "print('nothing to train')\n")
    assert (done.returncode, done.stdout) == (0, "nothing to train\n")
    assert "nothing was measured: the script took fewer optimizer steps" in done.stderr
    assert "script: got 'missing.py'" in errors_of(watch("missing.py", cwd=tmp_path))
    assert "script: got an empty text" in watch(cwd=tmp_path).stderr
    (tmp_path / "taken").touch()
    unusable = {
        "--runs-dir": ["taken/runs", "/proc/runs"],
        "--name": ["a-b", 201 * "a"],
        "--end": ["mine.py"],
        "--arguments": ["'a"],
        "--log": ["yes"],
    }
    for option, value in ((option, value) for option, values in unusable.items() for value in values):
        refused = watch(option, value, "mine.py", cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{option.strip('-').replace('-', '_')}: got {shown(value)}" in refused.stderr


def test_it_is_logged_on_request(tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    script = STEP + "for _ in range(30): step()\nassert sys.argv[1:] == ['a b', 'c']\nsys.exit(7)\n"
    (tmp_path / "mine.py").write_text(script)
    options = ("--script", "mine.py", "--arguments", "'a b' c", "--measured-steps", 4)
    assert watch(*options, cwd=tmp_path).returncode == 7
    assert runs_of(tmp_path) == {}
    done = watch(*options, "--log", "true", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    (run,) = runs_of(tmp_path).values()
    assert f"is run {run.info.run_id} in MLflow" in done.stderr
    assert "memory/peak_allocated_mib" in run.data.metrics
    assert "lr" not in run.data.params


def test_a_store_that_refuses_changes_nothing_but_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    script = STEP + "for _ in range(30): step()\nsys.exit(7)\n"
    done = watch_text(tmp_path, script, "--measured-steps", 4, "--log", "true")
    assert done.returncode == 7
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dpprof:")]
    folder = line.rpartition("dpprof log ")[2]
    assert "file is not a database" in line
    assert (tmp_path / folder / "record.json").exists()


def test_each_rank_of_a_launch_is_measured(tmp_path: Path) -> None:
    """By torchrun, with two ranks that communicate through gloo."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    script = EXAMPLES / "ddp.py"
    watching = ("-m", "dpprof", "watch", "--measured-steps", 4, script)
    for _ in range(4):
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        alone, watched = (
            fork("-W", "ignore", *launch, *what, cwd=tmp_path) for what in ((script,), watching)
        )
        if "terminate called" not in alone.stderr + watched.stderr:  # torch's ranks may abort at their exit
            break
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert alone.stdout.splitlines()[-1] in watched.stdout.splitlines()
    assert watched.stdout.count("At the peak") == 1
    configs = sorted(tmp_path.glob("runs/*/*/config.json"))
    assert [path.parent.name[-6:] for path in configs] == ["_rank0", "_rank1"]
    assert configs[0].parent.parent == configs[1].parent.parent
    records = [known(RunFolder(path.parent).read_record()) for path in configs]
    assert [record.environment["rank"] for record in records] == ["0", "1"]
    for record in records:
        assert record.phase_s.keys() == PLAIN
        assert {row.name for row in known(record.ledger).collectives} == {"all_reduce"}
        assert known(record.ledger).peak == pytest.approx(known(record.memory.peak_allocated), rel=0.001)


def test_a_loop_in_a_thread_is_measured_and_that_of_another_one_is_left_out(tmp_path: Path) -> None:
    threads = """
import threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
    for _ in range(30):
        first.submit(step).result()
        second.submit(step).result()
"""
    fine(watch_text(tmp_path, STEP + threads, "--measured-steps", 4))
    record = record_in(tmp_path)
    assert finished(record)
    assert len(record.step_s) == 4
    assert any("optimizer steps ran in other threads" in warning for warning in record.warnings)


@pytest.mark.parametrize(("steps", "unfinished"), [(9, "ledger"), (15, "trace")])
def test_the_end_of_the_loops_thread_ends_its_measurement(
    steps: int, unfinished: str, tmp_path: Path
) -> None:
    loop = f"[step() for _ in range({steps})]"
    threads = f"import threading\nt = threading.Thread(target=lambda: {loop})\nt.start(); t.join()\n"
    script = STEP + threads + "print(weight.sum().item())\nsys.exit(3)\n"
    done = watch_text(tmp_path, script, "--measured-steps", 4)
    assert done.returncode == 3, done.stderr
    outcome = record_in(tmp_path).passes[unfinished]
    assert outcome.status is PassStatus.SKIPPED
    assert "the loop ended after" in known(outcome.reason)


def test_forked_processes_are_left_alone(tmp_path: Path) -> None:
    forks = """
torch.set_num_threads(1)
if os.fork() == 0:
    for _ in range(30): step()
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = watch_text(tmp_path, STEP + forks, "--measured-steps", 4)
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert "Steps in other processes" in done.stderr
    assert not list(tmp_path.glob("runs/*"))


COMPILING = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(backend="eager")
def update(): optimizer.step()
compiled = torch.compile(model, backend="aot_eager", fullgraph=FULLGRAPH)
for _ in range(40):
    optimizer.zero_grad(); loss = FORWARD(torch.randn(4, 8)).square().mean(); loss.backward(); UPDATE()
print(loss.item())
"""


@pytest.mark.parametrize(
    ("forward", "update", "fullgraph"),
    [
        ("model", "update", "False"),
        ("compiled", "optimizer.step", "False"),
        ("compiled", "optimizer.step", "True"),
    ],
)
def test_compiled_code_runs_as_it_is_and_a_compiled_model_is_named(
    forward: str, update: str, fullgraph: str, tmp_path: Path
) -> None:
    script = COMPILING.replace("FORWARD", forward).replace("UPDATE", update).replace("FULLGRAPH", fullgraph)
    watched = fine(watch_text(tmp_path, script, "--measured-steps", 4))
    alone = fine(fork("mine.py", cwd=tmp_path))
    assert alone.stdout.splitlines()[-1] in watched.stdout.splitlines()
    if forward == "compiled":
        assert any(warning.startswith("compiled code") for warning in record_in(tmp_path).warnings)


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
    done = fine(watch_text(tmp_path, script, "--measured-steps", 4))
    record = record_in(tmp_path)
    assert record.num_parameters == 8 * 4 + 4 + 4 * 8 + 8
    assert all(group.trains and group.moved for group in record.parameters)
    said = " ".join(done.stdout.split())
    assert "several models were called: Student is taken for the model, and what Sequential holds" in said


def test_a_notebook_shows_the_timeline(tmp_path: Path) -> None:
    """As nbconvert runs it, and in a page of Jupyter's."""
    pytest.importorskip("nbconvert")
    shutil.copy(EXAMPLES / "notebook.ipynb", tmp_path)
    fine(fork("-m", "nbconvert", "--to", "html", "--execute", "notebook.ipynb", cwd=tmp_path))
    page = (tmp_path / "notebook.html").read_text()
    assert "memory/peak_in_backward_mib" in page
    assert page.count("<iframe srcdoc=") == 1
    record = record_in(tmp_path)
    assert finished(record)
    assert record.warnings == []

"""`dpprof watch --target`: a script's steps on fake tensors, beside `dpprof estimate` of the same."""

import subprocess
from dataclasses import astuple, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT
from covering import sampled
from example_runs import known, measured
from forked import fork
from tiny_ledgers import BUILT_IN

from dpprof.config.flat import from_flat
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.tracking.contents import params_of
from dpprof.vocabulary.units import MIB

SETTINGS = {"model_size": "tiny", "batch_size": 8, "seq_len": 32}
# The tutorials' loops, and one that accumulates two physical batches.
LOOP = f"""
import sys
from contextlib import nullcontext
from itertools import islice
import torch
from dpprof.config.flat import from_flat
from dpprof.measure.workloads.workload import build_workload
from tutorial_loops import make_loop

config = from_flat({SETTINGS!r} | {{"device": "cpu", "trainer": sys.argv[1]}}).resolve(cuda_available=False)
workload = build_workload(config)
batches = islice(workload.batches, 40)
if sys.argv[2] == "1":
    make_loop(config, workload)(batches, nullcontext)
optimizer = torch.optim.SGD(workload.model.parameters(), lr=config.lr, momentum=config.momentum)
held = dict()
def train(pair):
    optimizer.zero_grad()
    for inputs, targets in pair:
        held["output"] = workload.model(inputs)
        held["loss"] = workload.loss(held["output"], targets).mean()
        held["loss"] = held["loss"] / 2
        held["loss"].backward()
    optimizer.step()
while True:
    # The own trainer's counted step begins without earlier batches; if held, they take a segment more.
    train(tuple(islice(batches, 2)))
raise SystemExit("it goes on")
"""
STEP = """
import math
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 2))
model.to("cpu").double()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4, dtype=torch.float64)).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
total = 0.0
for number in range(20):
    loss = step()
"""


def watch(path: Path, text: str, *arguments: str, target: str = "H100") -> "subprocess.CompletedProcess[str]":
    (path / "mine.py").write_text(text)
    paths = f"import sys; sys.path.append({str(ROOT / 'benchmarks')!r})\n"
    (path / "mine.py").write_text(paths * ("tutorial_loops" in text) + text)
    options = ["--measured-steps", "3", "--target", target]
    return fork("-m", "dpprof", "watch", *options, "mine.py", *arguments, cwd=path)


def record_in(path: Path) -> Record:
    (config,) = path.glob("runs/*/*/config.json")
    return known(RunFolder(config.parent).read_record())


SAMPLE = {("StandardTrainer", 2), ("DPGhostClippingTrainer", 1)}


@pytest.mark.parametrize(
    ("trainer", "accumulation_steps"),
    sampled([*((trainer, 1) for trainer in BUILT_IN), ("StandardTrainer", 2)], SAMPLE),
)
def test_a_loop_takes_what_the_own_trainer_is_estimated_to_take_to_the_byte(
    trainer: str, accumulation_steps: int, tmp_path: Path
) -> None:
    done = watch(tmp_path, LOOP, trainer, str(accumulation_steps))
    assert done.returncode == 0, done.stderr
    assert "it goes on" not in done.stderr
    loop = record_in(tmp_path)
    asked = {"trainer": trainer, "accumulation_steps": accumulation_steps, "device": "cuda", "target": "H100"}
    config = from_flat(SETTINGS | asked | {"passes": "estimate", "savings": False})
    own = measured(tmp_path, config.resolve(cuda_available=True))
    assert loop.is_estimate
    mine, expected = known(loop.ledger), known(own.ledger)
    assert (mine.peak, mine.doubts) == (expected.peak, expected.doubts)
    assert mine.from_allocator == expected.from_allocator
    # What one of them allocates and frees before its steps can move blocks to another small segment.
    assert astuple(known(mine.segments)) == pytest.approx(astuple(known(expected.segments)), abs=2 * MIB)
    reserved = known(own.memory.peak_reserved)
    assert known(loop.memory.peak_reserved) == pytest.approx(reserved, abs=2 * MIB)
    assert replace(loop.memory, peak_reserved=reserved) == own.memory
    peaks, of_own = (
        {phase: sum(peak.by_category.values()) for phase, peak in ledger.phase_peak.items()}
        for ledger in (mine, expected)
    )
    assert peaks == of_own
    assert "fits H100" in " ".join(done.stdout.split())


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_loop_logs_what_nobody_knows(optimizer: str, tmp_path: Path) -> None:
    logged = """
    total += loss.item()
    print(f"{number:d} {loss:.3f} {total / 2:8.4f}", round(-loss.item(), 2), loss.item() ** 2)
    assert math.isfinite(loss.item()) and not math.isnan(total)
    assert not torch.isnan(loss) and torch.isfinite(loss).all() and not torch.isinf(model[0].weight).any()
"""
    done = watch(tmp_path, STEP.format(optimizer=optimizer) + logged)
    assert done.returncode == 0, done.stderr
    assert "1 nan nan nan nan" in done.stdout
    ledger = known(record_in(tmp_path).ledger)
    states = {"SGD": 0, "AdamW": 2}[optimizer] * 8 * (4 * 2 + 2)  # without the counts of steps
    assert ledger.phase_peak["forward"].by_category.get("optimizer_state", 0) == states
    # As on CUDA, the optimizer updates all parameters at once.
    updates = {row.name for row in ledger.traffic if row.phase == "optimizer_step"}
    assert {"SGD": "aten::_foreach_add_", "AdamW": "aten::_foreach_sqrt"}[optimizer] in updates
    (config,) = tmp_path.glob("runs/*/*/config.json")
    params = params_of(read_result(RunFolder(config.parent)))
    assert (params["target"], params["precision"]) == ("H100", "fp32")
    assert not {"lr", "warmup_steps", "measured_steps"} & params.keys(), "not known, or another pass's"


def test_a_loop_that_needs_a_value_is_told_where(tmp_path: Path) -> None:
    needs = ("loss.item() > 3", "bool(loss > 3)", "loss.detach().numpy()", "loss.tolist()", "int(loss)")
    caught = [f"    try: {need}\n    except Exception as error: print(error)\n" for need in needs]
    done = watch(tmp_path, STEP.format(optimizer="SGD") + "".join(caught) + "    loss[loss > 0].sum()\n")
    assert done.returncode == 1
    said = [*done.stdout.splitlines(), done.stderr.splitlines()[-1].removeprefix("dpprof: ")]
    expected = [f"mine.py:{line} needs the value of a tensor" for line in range(18, 28, 2)]
    expected.append("mine.py:28 needs the values of a tensor")
    assert [line.partition(",")[0] for line in said] == expected
    assert all("measure it with `dpprof watch` on a smaller batch" in line for line in said)
    assert "Traceback" not in done.stderr


def test_the_scripts_error_is_its_own(tmp_path: Path) -> None:
    done = watch(tmp_path, STEP.format(optimizer="SGD") + "    raise ValueError('bad luck')\n")
    assert done.returncode == 1
    assert "ValueError: bad luck" in done.stderr
    assert "if mine.py:18 fails only so" in done.stderr


def test_a_script_that_does_not_train_gives_no_estimate(tmp_path: Path) -> None:
    done = watch(tmp_path, "print('nothing')\n")
    assert (done.returncode, done.stdout) == (1, "nothing\n")
    assert "the script took fewer optimizer steps than --warmup-steps and one more" in done.stderr


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    done = watch(tmp_path, STEP, target="H1000")
    assert done.returncode == 2
    assert "target: got 'H1000', allowed: none, B200, H200, H100" in done.stderr


@pytest.mark.parametrize(
    ("script", "needs"),
    [
        pytest.param("opacus_virtual_steps", [], marks=pytest.mark.exhaustive),
        ("hugging_face_trainer", ["transformers", "accelerate"]),
        pytest.param("opake_dpsgd", ["opake"], marks=pytest.mark.exhaustive),
    ],
)
def test_an_example_is_estimated(script: str, needs: list[str], tmp_path: Path) -> None:
    if any(find_spec(library) is None for library in needs):
        pytest.skip("a library of it is not installed")
    text = (ROOT / "examples" / "own_loops" / f"{script}.py").read_text()
    done = watch(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert known(record_in(tmp_path).ledger).peak > 0


def test_a_data_set_stays_with_the_processor_and_is_sampled(tmp_path: Path) -> None:
    """The batches of Opacus's Poisson sampling vary, and the data set is no part of the peak."""
    text = (ROOT / "examples" / "own_loops" / "opacus_flat.py").read_text().replace("512", "51200")
    done = watch(tmp_path, text.replace("batch_size=32", "batch_size=64"))
    assert done.returncode == 0, done.stderr
    record = record_in(tmp_path)
    assert len(set(record.step_samples)) > 1
    assert "batches differ in size" in record.warnings[0]
    # Twice the per-sample gradients at most, far less than the 153 MiB of the data set.
    most = 2 * max(record.step_samples) * known(record.num_parameters) * 4
    assert known(record.ledger).peak < most + 16 * 2**20

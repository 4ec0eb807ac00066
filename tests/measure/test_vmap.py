"""Steps by `vmap`, which dpprof does not have: right, and estimated.

That of `examples/vmap_trainer` to the byte; that of Opake, `benchmarks/published/vmap.py`, with both clips.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import ROOT
from example_config import experiment
from example_runs import known, measured
from forked import fork

from dpprof.config.named_trainers import load_named
from dpprof.measure.verifying.verification import verify_trainer
from dpprof.record.figures.verdicts import FAIL, having
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS

VMAP = {"trainer": "vmap_trainer:VMAP"}
SMALL_QWEN = (
    "num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    "vocab_size=200"
)
LORA: dict[str, Any] = {"workload": "huggingface:qwen2.5-7b", "model_config": SMALL_QWEN, "train": "lora"}
LORA |= {"weights_dtype": "bf16", "optimizer": "adafactor", "batch_size": 2, "seq_len": 16}
LORA |= {"accumulation_steps": 2, "device": "cpu"}


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "vmap_trainer"))
    with mock.patch.dict(TRAINERS), mock.patch.dict(TRAINER_NAMES), mock.patch.dict(os.environ):
        load_named(VMAP["trainer"])
        yield


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_is_dp_sgd(precision: str) -> None:
    config = experiment(workload="example_workloads:mlp", batch_size=4, precision=precision, **VMAP)
    found = verify_trainer(config.resolve(cuda_available=False))
    assert not having(found.checks, FAIL)
    made = {check.name for check in found.checks}
    assert {"sensitivity_huge", "noise_deviation", "gradient_float64_accumulated"} <= made


def test_a_step_without_samples_adds_noise_alone() -> None:
    config = experiment(workload="example_workloads:mlp", batch_size=1, poisson_sampling=True, **VMAP)
    assert not having(verify_trainer(config.resolve(cuda_available=False)).checks, FAIL)


def test_its_estimate_is_what_is_measured(tmp_path: Path) -> None:
    peaks = [
        known(measured(tmp_path / passes, passes=passes, **LORA | VMAP).ledger).peak
        for passes in ("clean,ledger", "estimate")
    ]
    assert peaks[0] == pytest.approx(peaks[1], abs=64)


# In a process of its own: Opake changes functions of torch.
PROGRAM = """
import json, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.named_trainers import load_named
from dpprof.measure.experiment import run_experiment
from dpprof.measure.gradient_check import Case
from dpprof.record.folder import RunFolder

load_named("vmap:TORCH,vmap:FOREACH")
small = {"train": "lora", "model_size": "tiny", "batch_size": 3, "seq_len": 8}
found = {}
for name in ("TORCH", "FOREACH"):
    settings = small | {"trainer": f"vmap:{name}"}
    case = Case(parse_experiment(settings | {"device": "cpu"}, MeasuringConfig).resolve(cuda_available=False))
    error = case.error("float32", case.clipped_mean(case.per_sample_gradients()))
    config = parse_experiment(
        settings | {"device": "cuda", "target": "A100-40GB", "savings": False}, EstimatingConfig
    )
    config = config.resolve(cuda_available=False)
    folder = RunFolder(Path(name))
    folder.create(config)
    clip = run_experiment(config, folder, lambda _: None).ledger.phase_s["clip"]
    found[name] = {"error": error, "operators": clip.operators, "seconds": clip.seconds}
print(json.dumps(found))
"""


def test_both_clips_are_right_and_torch_s_takes_the_host_longer(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = fork(program, ROOT / "benchmarks" / "published", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    each, listed = json.loads(done.stdout.splitlines()[-1]).values()
    assert max(each["error"], listed["error"]) < 1e-5
    tensors, microbatches = 2 * 12, 2
    assert 30 < each["operators"] / (tensors * microbatches) < 36, "the source counts 33 kernels"
    assert listed["operators"] < tensors * microbatches
    assert each["seconds"] > 3 * listed["seconds"]

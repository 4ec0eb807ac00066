"""An algorithm that dpprof does not have, `examples/vmap_trainer`: right, and estimated to the byte."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import ROOT
from example_config import experiment
from example_runs import known, measured

from dpprof.config.named_trainers import load_named
from dpprof.measure.verifying.verification import verify_trainer
from dpprof.record.figures.verdicts import FAIL, having
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS

VMAP = {"trainer": "vmap_trainer:VMAP"}
SMALL_QWEN = (
    "num_hidden_layers=2,hidden_size=64,intermediate_size=128,num_attention_heads=4,num_key_value_heads=2,"
    "vocab_size=200"
)
LORA: dict[str, Any] = {
    "workload": "huggingface:qwen2.5-7b",
    "model_config": SMALL_QWEN,
    "train": "lora",
    "weights_dtype": "bf16",
    "optimizer": "adafactor",
    "batch_size": 2,
    "seq_len": 16,
    "accumulation_steps": 2,
    "device": "cpu",
}


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

"""Frozen parameters have no gradients and no per-sample gradients, measured and estimated alike."""

from pathlib import Path
from typing import Any

import pytest
from example_config import experiment

from dpprof.config.estimating import ESTIMATE
from dpprof.figures.theory import flops_in_theory, flops_of_layers
from dpprof.measure.experiment import run_experiment
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record

BATCH = 4
ADAPTED = 6  # the linear layers of one block
# peft multiplies what an adapter gives by its scale. Autograd keeps that number in a tensor of 8 bytes on the
# CPU, which no dispatch mode gets to see.
SCALE = 8
TRAINERS = ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer", "DPMixedGhostTrainer"]


def run(tmp_path: Path, **settings: Any) -> Record:
    """The logits are large, so that the peak is above the blocks. In them the ledger may see more than there
    is: where gradients meet, autograd adds in place, but not under a dispatch mode.
    """
    given = {"model_size": "tiny", "num_layers": 1, "batch_size": BATCH, "seq_len": 16}
    config = experiment(**given, device="cpu", **settings).resolve(cuda_available=False)
    folder = RunFolder(tmp_path / str(settings["passes"]))
    folder.create(config)
    return run_experiment(config, folder, lambda text: None)


@pytest.mark.parametrize("train", ["head", "lora"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_memory_and_flops_of_what_trains(trainer: str, train: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"trainer": trainer, "train": train, "lr": 0.5}
    passes = "clean,memory,ledger"
    measured = run(tmp_path, passes=passes, warmup_steps=1, measured_steps=2, **settings)
    estimated = run(tmp_path, passes=ESTIMATE, savings=False, **settings)
    assert measured.ledger is not None
    assert estimated.ledger is not None
    assert estimated.ledger.at_peak == measured.ledger.at_peak
    unseen = SCALE * ADAPTED if train == "lora" else 0
    assert estimated.memory.peak_allocated is not None
    assert measured.memory.peak_allocated == estimated.memory.peak_allocated + unseen
    trainable = 4 * sum(group.numbers for group in measured.parameters if group.trains)
    assert measured.held["gradients"] == trainable
    if trainer == "DPSGDTrainer":
        assert measured.held["per_sample_gradients"] == BATCH * trainable
    assert [(g.kind, g.numbers) for g in measured.parameters] == [
        (g.kind, g.numbers) for g in estimated.parameters
    ]
    assert {group.moved for group in measured.parameters} == {False, True}
    assert {group.moved for group in estimated.parameters} == {None}
    in_theory = flops_in_theory(measured, measured.ledger)
    assert in_theory == pytest.approx(flops_of_layers(measured.ledger), rel=0.02)  # norms are not in theory

"""Frozen parameters have no gradients and no per-sample gradients, measured and estimated alike."""

from pathlib import Path
from typing import Any

import pytest
from covering import product
from example_runs import known
from example_runs import measured as run

from dpprof.config.estimating import ESTIMATE
from dpprof.record.figures.ledger import flops_in_theory, flops_of_layers

BATCH = 4
ADAPTED = 6  # the linear layers of one block
# peft multiplies what an adapter gives by its scale. Autograd keeps that number in a tensor of 8 bytes on the
# CPU, which no dispatch mode gets to see.
SCALE = 8
TRAINERS = ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer", "DPMixedGhostTrainer"]


# The logits are large, so that the peak is above the blocks. In them the ledger may see more than there is:
# where gradients meet, autograd adds in place, but not under a dispatch mode.
SMALL = {"model_size": "tiny", "num_layers": 1, "batch_size": BATCH, "seq_len": 16, "device": "cpu"}


@pytest.mark.parametrize(("trainer", "train"), product(TRAINERS, ["head", "lora"]))
def test_memory_and_flops_of_what_trains(trainer: str, train: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"trainer": trainer, "train": train, "lr": 0.5}
    few: dict[str, Any] = {"passes": "clean,memory,ledger", "warmup_steps": 1, "measured_steps": 2}
    measured = run(tmp_path / "measured", **few, **settings)
    estimated = run(tmp_path / "estimated", passes=ESTIMATE, savings=False, **settings)
    ledger = known(measured.ledger)
    assert known(estimated.ledger).at_peak == ledger.at_peak
    unseen = SCALE * ADAPTED if train == "lora" else 0
    assert measured.memory.peak_allocated == known(estimated.memory.peak_allocated) + unseen
    trainable = 4 * sum(group.numbers for group in measured.parameters if group.trains)
    assert measured.held["gradients"] == trainable
    if trainer == "DPSGDTrainer":
        assert measured.held["per_sample_gradients"] == BATCH * trainable
    assert [(g.kind, g.numbers) for g in measured.parameters] == [
        (g.kind, g.numbers) for g in estimated.parameters
    ]
    assert {group.moved for group in measured.parameters} == {False, True}
    assert {group.moved for group in estimated.parameters} == {None}
    in_theory = flops_in_theory(measured, ledger)
    assert in_theory == pytest.approx(flops_of_layers(ledger), rel=0.02)  # norms are not in theory

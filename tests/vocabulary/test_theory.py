"""The formulas of FLOPs against those counted in a real step."""

import dataclasses

import pytest
from example_trainers import CONFIG, taking

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat, with_own_options
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.training import Training
from dpprof.record.figures.ledger import flops_in_theory, flops_of_layers
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.trainers import BUILT_IN, DEFAULT_TRAINERS

WIDE = dataclasses.replace(CONFIG, hidden_dim=64, seq_len=64, vocab_size=300)


def check(config: ExperimentConfig) -> LedgerResult:
    """Hold what a step's ledger counts against the formulas."""
    config = with_own_options(config)
    found = keep_ledger(lambda: Training(config), Ledger("cpu"), 1).result
    expected = flops_in_theory(Record(to_flat(config), {}), found)
    assert expected is not None
    assert flops_of_layers(found) == pytest.approx(expected, rel=0.02)
    return found


@pytest.mark.parametrize("trainer", [info.name for info in BUILT_IN if info.theory is not None])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_is_counted_is_what_theory_says(trainer: str, checkpointing: bool) -> None:
    steps = 2 if trainer in taking("accumulation_steps") else 1
    config = dataclasses.replace(WIDE, trainer=trainer, accumulation_steps=steps)
    check(dataclasses.replace(config, activation_checkpointing=checkpointing))


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_convolutions_are_counted_as_theory_says(trainer: str) -> None:
    check(dataclasses.replace(CONFIG, trainer=trainer, workload="cifar_nets:small_net"))


@pytest.mark.parametrize("trainer", ["StandardTrainer", "DPGhostClippingTrainer", "DPMixedGhostTrainer"])
@pytest.mark.parametrize("train", ["bias", "*.mlp_in.*"])
def test_frozen_weights_are_counted_as_theory_says(trainer: str, train: str) -> None:
    """The head's among them, which mixed differentiates once all the same."""
    found = check(dataclasses.replace(WIDE, trainer=trainer, train=train))
    assert all(layer.norm is None for layer in found.layers if not layer.weight_trains)

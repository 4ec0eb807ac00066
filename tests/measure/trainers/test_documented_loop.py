"""`loop=documented` holds and moves what the loops of PyTorch's and Opacus's tutorials do, to the byte."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from covering import product
from documented_loop import NUM_STEPS, allocated, keep_ours, keep_theirs, train_ours, train_theirs

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.record.ledger import TrafficRow
from dpprof.vocabulary.loops import LOOPS
from dpprof.vocabulary.trainers import BUILT_IN, STANDARD

# Those whose libraries have a tutorial.
TRAINERS = [STANDARD, *(info.name for info in BUILT_IN if ".opacus." in info.target and info.is_default)]
MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"model_size": "tiny", "batch_size": 4, "seq_len": 128},
    "small": {"model_size": "small", "num_layers": 2, "batch_size": 4, "seq_len": 128},
    "mlp": {"workload": "example_workloads:mlp", "batch_size": 8},
    "wide_outputs": {"workload": "example_workloads:wide_outputs", "batch_size": 4},
    "dp_lstm": {"workload": "example_workloads:dp_lstm", "batch_size": 4, "seq_len": 12},
}


def resolved(model: str, trainer: str, **changes: Any) -> ExperimentConfig:
    return ExperimentConfig(trainer=trainer, device="cpu", **MODELS[model], **changes).resolve(
        cuda_available=False
    )


@pytest.mark.parametrize(("trainer", "model"), product(TRAINERS, ["tiny", "mlp", "wide_outputs", "dp_lstm"]))
def test_allocated_bytes_are_those_of_the_tutorials_loop(model: str, trainer: str) -> None:
    config = resolved(model, trainer)
    steps = allocated(lambda: train_ours(config))
    assert len(steps) == NUM_STEPS
    assert steps == allocated(lambda: train_theirs(config))


def by_operator(traffic: list[TrafficRow]) -> dict[str, tuple[int, int, int, int]]:
    """Calls, bytes read and written and FLOPs, over all phases."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for row in traffic:
        calls, read, written, flops = found.get(row.name, (0, 0, 0, 0))
        found[row.name] = (calls + row.calls, read + row.read, written + row.written, flops + row.flops)
    return found


def without_data(trainer: str) -> AbstractContextManager[None]:
    return fake_tensors(load_trainer(trainer))


@pytest.mark.parametrize(("trainer", "model"), product(TRAINERS, ["small", "mlp", "dp_lstm"]))
def test_the_ledger_is_that_of_the_tutorials_loop(model: str, trainer: str) -> None:
    config = resolved(model, trainer)
    place = nullcontext if model == "mlp" else without_data
    with place(trainer):
        theirs, their_traffic = keep_theirs(config)
    with place(trainer):
        ours = keep_ours(config)
    assert ours.account.peak == theirs.peak
    assert sum(ours.account.after_step.values()) == sum(theirs.after_step.values())
    assert by_operator(ours.result.traffic) == by_operator(their_traffic)


@pytest.mark.parametrize(("trainer", "model"), product(TRAINERS, ["tiny", "wide_outputs"]))
def test_a_saving_saves_what_a_loop_with_it_does_not_need(model: str, trainer: str) -> None:
    """A step with a saving, taken after others, has the peak of a training that always made it."""
    config, lean = resolved(model, trainer), resolved(model, trainer, loop="lean")
    with without_data(trainer):
        kept = keep_ours(config, with_savings=True)
    names = ("outputs",) if trainer == "StandardTrainer" else ("gradients", "outputs", "all")
    assert tuple(kept.saved) == names
    for name in names:

        def build(made: tuple[str, ...] = names[:2] if name == "all" else (name,)) -> Training:
            training = Training(config)
            training.trainer.save(made)
            return training

        with without_data(trainer):
            always = keep_ledger(build, Ledger("cpu"), 1)
        assert kept.account.peak - kept.saved[name] == always.account.peak, name
    with without_data(trainer):
        kept_lean = keep_ours(lean, with_savings=True)
    assert (kept_lean.account.peak, kept_lean.saved) == (kept.account.peak - kept.saved[names[-1]], {})


@pytest.mark.parametrize("loop", LOOPS)
def test_opacus_keeps_the_gradients_between_the_two_backward_passes(loop: str) -> None:
    """They are zeroed there, 4 bytes of traffic for each parameter, and no user can change it."""
    with without_data("DPGhostClippingTrainer"):
        kept = keep_ours(resolved("small", "DPGhostClippingTrainer", loop=loop))
    weights = kept.account.start["parameters"]
    zeroed = [row for row in kept.result.traffic if row.phase == "clip" and row.name == "aten::zero_"]
    assert sum(row.written for row in zeroed) == weights
    assert kept.account.phase_peak["backward_weighted"].by_category["gradients"] == weights

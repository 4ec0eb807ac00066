"""`loop=documented` holds and moves what the loops of PyTorch's and Opacus's tutorials do, to the byte."""

from contextlib import nullcontext
from typing import Any

import pytest
from documented_loop import NUM_STEPS, allocated, keep_ours, keep_theirs, train_ours, train_theirs

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.experiment import ExperimentTraining
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.ledger import TrafficRow
from dpprof.vocabulary.trainers import BUILT_IN, STANDARD

# Those whose libraries have a tutorial.
TRAINERS = [STANDARD, *(info.name for info in BUILT_IN if ".opacus." in info.target and info.is_default)]
MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"model_size": "tiny", "batch_size": 4, "seq_len": 128},
    "small": {"model_size": "small", "num_layers": 2, "batch_size": 4, "seq_len": 128},
    "medium": {"model_size": "medium", "batch_size": 4, "seq_len": 512},
    "mlp": {"workload": "example_workloads:mlp", "batch_size": 8},
    "wide_outputs": {"workload": "example_workloads:wide_outputs", "batch_size": 4},
    "dp_lstm": {"workload": "example_workloads:dp_lstm", "batch_size": 4, "seq_len": 12},
}


def resolved(model: str, trainer: str, **changes: Any) -> ExperimentConfig:
    return ExperimentConfig(trainer=trainer, device="cpu", **MODELS[model], **changes).resolve(
        cuda_available=False
    )


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("model", [name for name in MODELS if name not in ("small", "medium")])
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


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("model", "fake"),
    [("small", True), ("medium", True), ("mlp", True), ("mlp", False), ("dp_lstm", True), ("dp_lstm", False)],
)
def test_the_ledger_is_that_of_the_tutorials_loop(model: str, fake: bool, trainer: str) -> None:
    config = resolved(model, trainer)
    with fake_tensors(load_trainer(config.trainer)) if fake else nullcontext():
        theirs, their_traffic = keep_theirs(config)
    with fake_tensors(load_trainer(config.trainer)) if fake else nullcontext():
        ours = keep_ours(config)
    assert ours.account.peak == theirs.peak
    assert sum(ours.account.after_step.values()) == sum(theirs.after_step.values())
    assert by_operator(ours.traffic) == by_operator(their_traffic)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("model", ["tiny", "wide_outputs"])
def test_a_saving_saves_what_a_loop_with_it_does_not_need(model: str, trainer: str) -> None:
    """A step with a saving, taken after others, has the peak of a training that always made it."""
    config = resolved(model, trainer)
    with fake_tensors(load_trainer(config.trainer)):
        kept = keep_ours(config, with_savings=True)
    names = ("outputs",) if trainer == "StandardTrainer" else ("gradients", "outputs", "all")
    assert tuple(kept.saved) == names
    for name in names:

        def build(made: tuple[str, ...] = names[:2] if name == "all" else (name,)) -> ExperimentTraining:
            training = ExperimentTraining(config, build_workload(config))
            training.save(made)
            return training

        with fake_tensors(load_trainer(config.trainer)):
            always = keep_ledger(build, Ledger("cpu"), 1)
        assert kept.account.peak - kept.saved[name] == always.account.peak, name
    lean = resolved(model, trainer, loop="lean")
    with fake_tensors(load_trainer(config.trainer)):
        assert keep_ours(lean).account.peak == kept.account.peak - kept.saved[names[-1]]
    with fake_tensors(load_trainer(config.trainer)):
        assert keep_ours(lean, with_savings=True).saved == {}


def test_opacus_keeps_the_gradients_between_the_two_backward_passes_in_both_loops() -> None:
    """They are zeroed there, 4 bytes of traffic for each parameter, and no user can change it."""
    for loop in ("documented", "lean"):
        config = resolved("small", "DPGhostClippingTrainer", loop=loop)
        with fake_tensors(load_trainer(config.trainer)):
            kept = keep_ours(config)
        weights = kept.account.start["parameters"]
        zeroed = [row for row in kept.traffic if row.phase == "clip" and row.name == "aten::zero_"]
        assert sum(row.written for row in zeroed) == weights
        assert kept.account.phase_peak["backward_weighted"].by_category["gradients"] == weights

"""After the steps: what should move has moved, and nothing else has."""

import re
from pathlib import Path
from typing import Any

import example_faulty_trainers as faulty
import numpy as np
import pytest
import torch
from covering import product
from example_config import experiment
from example_runs import measured, put_in_place
from torch import nn

from dpprof.errors import WeightsError
from dpprof.measure.experiment import PassFailed
from dpprof.measure.passes.weights import _checksum, parameter_groups
from dpprof.record.record import ParameterGroup, Record
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

SMALL: dict[str, Any] = {"model_size": "tiny", "vocab_size": 50, "hidden_dim": 16, "num_layers": 1}
SMALL |= {"num_heads": 2, "batch_size": 2, "seq_len": 8, "warmup_steps": 1, "measured_steps": 2}
SMALL |= {"passes": "clean", "device": "cpu"}


def run(tmp_path: Path, **settings: Any) -> Record:
    return measured(tmp_path, **SMALL | settings)


def refusal(tmp_path: Path, **settings: Any) -> str:
    with pytest.raises(PassFailed) as failed:
        run(tmp_path, **settings)
    assert isinstance(failed.value.__cause__, WeightsError)
    return str(failed.value.__cause__)


HOW: list[dict[str, Any]] = [{}, {"optimizer": "adamw"}, {"momentum": 0.9, "accumulation_steps": 2}]
HOW.append({"poisson_sampling": True, "warmup_steps": 3})


@pytest.mark.parametrize(("trainer", "how"), product(DEFAULT_TRAINERS, HOW))
def test_adapters_move_and_nothing_else_does(trainer: str, how: dict[str, Any], tmp_path: Path) -> None:
    record = run(tmp_path, trainer=trainer, train="lora", lr=0.5, **how)
    assert record.warnings == []
    moved = {group.kind: group.moved for group in record.parameters}
    assert {kind for kind, has_moved in moved.items() if has_moved} == {"lora_A.weight", "lora_B.weight"}
    assert moved["Linear.weight"] is False


BK, FLAT = "DPBookKeepingTrainer", "DPSGDTrainer"
LORA = {"train": "lora"}
ADAPTERS = r".*blocks\.0\.attention\.query\.lora_B\.default\.weight.* should train and did not move, though "
FROZEN = r"token_embedding\.weight, position_embedding\.weight, .*should not train and moved"
LOST = r"head\.bias should train, and at most noise moves them"


@pytest.mark.parametrize(
    ("of", "trainer", "settings", "says"),
    [
        ("StandardTrainer", faulty.TrainsCopiesWithoutPrivacy, LORA, ADAPTERS),
        (BK, faulty.TrainsCopies, LORA, ADAPTERS),
        (FLAT, faulty.StandsStill, LORA, ADAPTERS),
        (FLAT, faulty.MovesTheFrozen, {"train": "head"}, FROZEN),
        (FLAT, faulty.DropsALayer, {}, r"head\.bias should train and did not move: not even noise"),
        (BK, faulty.LosesAGradient, {"noise_multiplier": 1.0}, LOST),
        (BK, faulty.LosesAGradient, {"noise_multiplier": 0.0}, LOST),
    ],
)
def test_a_trainer_that_moves_other_weights_fails_the_run(
    of: str, trainer: type, settings: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(monkeypatch, of, trainer)
    assert re.match(says, refusal(tmp_path, trainer=of, **settings))


def test_after_an_empty_batch_the_next_one_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this seed the last of the timed batches has no sample, and so no gradient."""
    how: dict[str, Any] = {"workload": "example_workloads:mlp", "batch_size": 1, "poisson_sampling": True}
    how |= {"warmup_steps": 3}
    how |= {"seed": next(s for s in range(99) if np.random.default_rng(s).poisson(1, 3)[-1] == 0)}
    assert run(tmp_path, **how).step_samples[-1] == 0
    put_in_place(monkeypatch, "StandardTrainer", faulty.TrainsCopiesWithoutPrivacy)
    assert "0.weight, 0.bias, 2.weight and 1 more should train" in refusal(tmp_path / "2", **how)


@pytest.mark.parametrize("trainer", ["StandardTrainer", "DPBookKeepingTrainer"])
def test_steps_too_small_to_show_are_a_warning(trainer: str, tmp_path: Path) -> None:
    """Norms begin at 1, whose next number in float32 is 1e-7 away; a bias begins at 0 and shows any step."""
    record = run(tmp_path, trainer=trainer, lr=1e-12, train="*norm.*")
    (warning,) = record.warnings
    assert warning.startswith("weights that should train did not move, steps are too")
    assert "norm.weight" in warning
    assert "norm.bias" not in warning
    fates = {(group.kind, group.moved) for group in record.parameters if group.trains}
    assert fates == {("LayerNorm.weight", False), ("LayerNorm.bias", True)}


def test_a_weight_that_the_loss_does_not_need_is_a_warning(tmp_path: Path) -> None:
    record = run(tmp_path, workload="example_workloads:with_unused_layer")
    (warning,) = record.warnings
    assert warning.endswith("the loss gives no gradient: unused.weight, unused.bias")


def test_groups_of_a_tied_model_count_a_weight_once() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.LayerNorm(4), nn.Linear(4, 10, bias=False))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    config = experiment(trainer="DPSGDTrainer")
    assert parameter_groups(model, config) == [
        ParameterGroup("Embedding.weight", 1, 40, trains=True, per_sample=True, dtype="fp32"),
        ParameterGroup("LayerNorm.weight", 1, 4, trains=False, per_sample=False, dtype="fp32"),
        ParameterGroup("LayerNorm.bias", 1, 4, trains=False, per_sample=False, dtype="fp32"),
    ]


def test_groups_have_the_type_of_their_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 4).bfloat16(), nn.Linear(4, 2).half(), nn.Linear(2, 2))
    record = Record({}, {}, parameters=parameter_groups(model, experiment(trainer="DPSGDTrainer")))
    told = {(group.kind, group.dtype, group.numbers) for group in record.parameters}
    assert told >= {("Linear.weight", "bf16", 16), ("Linear.bias", "fp16", 2), ("Linear.weight", "fp32", 4)}
    assert record.weights == {"bf16": 20, "fp16": 10, "fp32": 6}
    assert record.weights_dtype == "bf16, fp16 and fp32"
    record.parameters.append(ParameterGroup("of an earlier version", 1, 4, trains=True, per_sample=True))
    assert (record.weights, record.weights_dtype) == ({}, "")


def test_a_checksum_is_the_sum_of_the_bits_and_sees_the_smallest_change() -> None:
    ones = torch.ones(300_000)
    assert _checksum(ones) == 300_000 * 0x3F800000
    assert _checksum(ones.bfloat16()) == 300_000 * 0x3F80
    assert _checksum(torch.zeros(3, 0)) == 0
    matrix = torch.randn(4, 6)
    assert _checksum(matrix.T) == _checksum(matrix)
    ones[299_999] = torch.nextafter(ones[0], torch.tensor(2.0))
    assert _checksum(ones) == 300_000 * 0x3F800000 + 1
    assert _checksum(-torch.zeros(1)) != _checksum(torch.zeros(1))

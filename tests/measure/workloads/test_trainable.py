"""What trains, against the arithmetic of parameter counts."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from covering import product
from example_config import experiment
from example_trainers import gradient_error
from torch import nn

from dpprof.errors import ConfigError
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.verifying.verification import verify_trainer
from dpprof.measure.workloads.trainable import choose_trainable, fill_adapters
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.figures.verdicts import PASS, judge_checks
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS

V, D, T, LAYERS, B = 50, 16, 8, 2, 3
CONFIG = experiment(
    model_size="tiny", vocab_size=V, hidden_dim=D, num_layers=LAYERS, num_heads=2, batch_size=B, seq_len=T
).resolve(cuda_available=False)
ATTENTION = 4 * (D * D + D)
BLOCK = 4 * D + ATTENTION + (D * 4 * D + 4 * D) + (4 * D * D + D)
HEAD = D * V + V
TOTAL = V * D + T * D + LAYERS * BLOCK + 2 * D + HEAD
OF_TWO = LAYERS * 8 * (2 * D + 5 * D)  # adapters of a module of D x D and of one of D x 4D
BIASES = LAYERS * (2 * D + 4 * D + 4 * D + D) + D + V


def adapters(rank: int) -> int:
    """Four modules of D x D and two of D x 4D in each block, each with rank x (rows + columns) numbers."""
    return LAYERS * rank * (4 * 2 * D + 2 * 5 * D)


def choose(model: nn.Module, **settings: Any) -> list[str]:
    return choose_trainable(model, dataclasses.replace(CONFIG, **settings))


def trainable(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.requires_grad]


@pytest.mark.parametrize(
    ("settings", "expected", "total"),
    [
        ({}, TOTAL, TOTAL),
        ({"train": "head"}, HEAD, TOTAL),
        ({"train": "bias"}, BIASES, TOTAL),
        ({"train": "*.attention.*"}, LAYERS * ATTENTION, TOTAL),
        ({"train": "blocks.1.*"}, BLOCK, TOTAL),
        ({"train": "blocks.0.*,blocks.1.*, head"}, 2 * BLOCK + HEAD, TOTAL),
        ({"train": "!*embedding*"}, TOTAL - V * D - T * D, TOTAL),
        ({"train": "all,!*embedding*,!bias"}, TOTAL - V * D - T * D - BIASES, TOTAL),
        ({"train": "bias,!head"}, BIASES - V, TOTAL),
        ({"train": "lora"}, adapters(8), TOTAL + adapters(8)),
        ({"train": "lora", "lora_rank": 2}, adapters(2), TOTAL + adapters(2)),
        ({"train": "lora", "lora_targets": "query, mlp_in"}, OF_TWO, TOTAL + OF_TWO),
    ],
)
def test_what_trains_by_arithmetic(settings: dict[str, Any], expected: int, total: int) -> None:
    workload = build_workload(dataclasses.replace(CONFIG, **settings))
    parameters = list(workload.model.parameters())
    assert sum(p.numel() for p in parameters if p.requires_grad) == expected
    assert sum(p.numel() for p in parameters) == total
    said = f"{expected:,} of {total:,} parameters train, the others are frozen"
    assert workload.changed == () if not settings else workload.changed[0].endswith(said)


def test_adapters_are_the_same_every_time_and_leave_the_weights_alone() -> None:
    plain = build_workload(CONFIG).model.state_dict()
    config = dataclasses.replace(CONFIG, train="lora")
    one, other = build_workload(config).model.state_dict(), build_workload(config).model.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    kept = {name.replace(".base_layer", ""): tensor for name, tensor in one.items() if "lora" not in name}
    assert kept.keys() == plain.keys()
    assert all(torch.equal(kept[name], plain[name]) for name in plain)


def test_a_new_adapter_changes_no_output_until_it_is_filled() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    inputs = torch.randn(3, 4)
    before = model(inputs)
    choose(model, train="lora")
    assert torch.equal(model(inputs), before)
    fill_adapters(model)
    assert not torch.allclose(model(inputs), before)
    assert trainable(model) == ["0.lora_A.default.weight", "0.lora_B.default.weight"]


def test_adapters_have_the_same_type_with_data_and_without() -> None:
    config = dataclasses.replace(CONFIG, train="lora")
    real = {name: (p.shape, p.dtype) for name, p in build_workload(config).model.named_parameters()}
    with fake_tensors(load_trainer(config.trainer)):
        fake = {name: (p.shape, p.dtype) for name, p in build_workload(config).model.named_parameters()}
        layers = nn.Sequential(nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 2))
        choose(layers, train="lora")
        short = nn.Sequential(nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 2))
        choose(short, train="lora", adapter_dtype="bf16")
    assert fake == real
    assert {p.dtype for p in layers[0].parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in short[0].parameters()} == {torch.bfloat16}


class Named(nn.Module):
    """A model that peft knows by its type, with a head tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(model_type="bert", tie_word_embeddings=True)
        self.embedding = nn.Embedding(7, 4)
        self.query, self.key, self.value, self.other = (nn.Linear(4, 4) for _ in range(4))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.pooler = nn.Linear(4, 4)

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def test_a_model_that_peft_knows_gets_its_choice_of_targets() -> None:
    model = Named()
    (said,) = choose(model, train="lora")
    assert said.startswith("fp32 LoRA adapters of rank 8 in query, value: 128 of ")
    assert {name.split(".")[0] for name in trainable(model)} == {"query", "value"}


def test_output_embeddings_are_the_head_and_a_tied_weight_trains_by_any_of_its_names() -> None:
    for train in ("head", "head.*", "embedding.weight"):
        model = Named()
        choose(model, train=train)
        assert trainable(model) == ["embedding.weight"], train


def test_a_layer_with_the_name_of_the_last_one_inside_gets_no_second_adapter() -> None:
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(4, 4))
    model.add_module("out", nn.Sequential())
    model.get_submodule("out").add_module("fc", nn.Linear(4, 4))
    choose(model, train="lora")
    assert {name.partition(".lora")[0] for name in trainable(model)} == {"fc"}


@pytest.mark.parametrize(
    ("settings", "start", "says"),
    [
        ({"train": "*.nothing"}, "train: got '*.nothing'", "or patterns that each match the name of a param"),
        ({"train": "bias"}, "train: got 'bias'", "the model has 0.weight, 1.weight"),
        ({"train": "lora", "lora_targets": "0,q"}, "lora_targets: got 'q'", "endings of the names of the"),
        ({"train": "lora", "lora_targets": "1"}, "lora_targets: got '1'", "modules that peft can adapt: "),
        ({"train": "lora"}, "lora_targets: got 'auto'", "no nn.Linear precedes the last one"),
    ],
)
def test_refusals(settings: dict[str, Any], start: str, says: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.RMSNorm(4))
    with pytest.raises(ConfigError) as refused:
        choose(model, **settings)
    assert str(refused.value).startswith(f"{start}, allowed: ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("trainer", "train"),
    [*((name, "lora") for name in TRAINERS), *product(DEFAULT_TRAINERS, ("bias", "head"))],
)
def test_the_gradient_of_what_trains_equals_the_naive_loop(trainer: str, train: str) -> None:
    assert gradient_error(dataclasses.replace(CONFIG, trainer=trainer, train=train), "float64") < 1e-12


@pytest.mark.parametrize("trainer", ["DPGhostClippingTrainer", "DPBookKeepingTrainer"])
def test_verify_passes_with_adapters(trainer: str) -> None:
    config = dataclasses.replace(CONFIG, trainer=trainer, train="lora", workload="example_workloads:mlp")
    assert judge_checks(verify_trainer(config)).word == PASS

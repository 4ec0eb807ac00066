from pathlib import Path

import pytest
from conftest import refusal

from dpprof.config.training import TrainingConfig
from dpprof.vocabulary.settings import take
from dpprof.vocabulary.trainers import BUILT_IN


def resolved(**values: object) -> TrainingConfig:
    return take(TrainingConfig, values)[0].resolve(cuda_available=False)


@pytest.mark.parametrize(
    ("cuda_available", "given", "expected"),
    [
        (False, {}, ("mini", 1_000, 128, 4, 4)),
        (True, {}, ("1b", 32_000, 2_048, 24, 32)),
        (False, {"model_size": "small"}, ("small", 8_000, 256, 4, 8)),
        (False, {"model_size": "medium", "num_layers": 1}, ("medium", 16_000, 512, 1, 8)),
        (False, {"vocab_size": 300, "hidden_dim": 6, "num_heads": 3}, ("mini", 300, 6, 4, 3)),
    ],
)
def test_resolve_fills_in_the_model(
    cuda_available: bool, given: dict[str, object], expected: tuple[object, ...]
) -> None:
    config = take(TrainingConfig, given)[0].resolve(cuda_available=cuda_available)
    sizes = (config.vocab_size, config.hidden_dim, config.num_layers, config.num_heads)
    assert (config.model_size, *sizes) == expected
    assert config.resolve(cuda_available=cuda_available) == config


def test_resolve_leaves_every_other_setting_alone() -> None:
    config = TrainingConfig(batch_size=7, lr=0.5, precision="bf16", seed=3)
    resolved = config.resolve(cuda_available=False)
    changed = {name for name, value in vars(config).items() if getattr(resolved, name) != value}
    assert changed == {"device", "model_size", "vocab_size", "hidden_dim", "num_layers", "num_heads"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "StandardTrainer_mini_bs4_seq512"),
        ({"trainer": "ghost", "batch_size": 16, "seq_len": 64}, "DPGhostClippingTrainer_mini_bs16_seq64"),
        ({"num_layers": "2", "hidden_dim": 64}, "StandardTrainer_mini-hidden64-layers2_bs4_seq512"),
        ({"workload": "my.pkg:net", "num_heads": 2}, "StandardTrainer_net-heads2_bs4_seq512"),
        ({"train": "lora", "lora_rank": 4, "num_heads": 2}, "StandardTrainer_mini-heads2-lora4_bs4_seq512"),
        # That of the factory, the module or as given.
        ({"workload": "mine.nets:gpt", "train": "head"}, "StandardTrainer_gpt-head_bs4_seq512"),
        ({"workload": "mine.nets:factory"}, "StandardTrainer_nets_bs4_seq512"),
        ({"workload": "nets:make_model"}, "StandardTrainer_nets_bs4_seq512"),
        ({"workload": "m:modeller"}, "StandardTrainer_modeller_bs4_seq512"),
        ({"trainer": "flat", "workload": "my.pkg:make_net"}, "DPSGDTrainer_make_net_bs4_seq512"),
        ({"workload": "m:gpt", "model_name": "net-2"}, "StandardTrainer_net-2_bs4_seq512"),
    ],
)
def test_run_name(given: dict[str, object], name: str) -> None:
    assert resolved(**given).run_name == name


def test_sizes_that_are_still_to_be_taken_from_the_model_size_are_not_named() -> None:
    assert TrainingConfig().model_title == "auto"
    assert TrainingConfig(model_size="small", num_layers=3, num_heads=8).model_title == "small-layers3"
    assert TrainingConfig(hidden_dim=64).model_title == "auto-hidden64"


OWN, CHECKPOINTED = {"workload": "m:f"}, {"activation_checkpointing": "true"}
FACTORY = "huggingface:NAME or package.module:factory"


@pytest.mark.parametrize(
    ("values", "start", "allowed"),
    [
        ({"model_name": "x"}, "model_name: got 'x'", "with any workload but SimpleBigModel"),
        (OWN | {"model_name": "a b"}, "model_name: got 'a b'", "letters, digits, '_', '-' and '.'"),
        ({"device": "cuda"}, "device: got 'cuda'", "cpu or auto: torch finds no CUDA device"),
        ({"hidden_dim": 66}, "hidden_dim: got '66'", "a multiple of num_heads, which is 4"),
        ({"num_heads": 5}, "hidden_dim: got '128'", "a multiple of num_heads, which is 5"),
        ({"optimizer": "adamw", "momentum": "0.9"}, "momentum: got '0.9'", "0 with optimizer=adamw"),
        (OWN | CHECKPOINTED, "activation_checkpointing: got 'True'", "false with any workload but Simple"),
        ({"workload": "Other"}, "workload: got 'Other'", FACTORY),
        ({"workload": "a b:c"}, "workload: got 'a b:c'", FACTORY),
        ({"precision": "tf32"}, "precision: got 'tf32'", "fp32 and bf16 on the CPU: tf32 needs CUDA"),
        ({"train": "bias,lora"}, "train: got 'bias,lora'", "lora alone: nothing else trains beside adapters"),
        ({"train": ""}, "train: got an empty text", "all, lora, bias, head or patterns of parameter names"),
        ({"lora_rank": 4}, "lora_rank: got '4'", "8 unless train=lora"),
        ({"train": "head", "lora_targets": "q"}, "lora_targets: got 'q'", "auto unless train=lora"),
        (
            {"train": "lora", "lora_targets": " , "},
            "lora_targets: got ','",
            "endings of the names of",
        ),
        ({"world_size": 2}, "world_size: got '2'", "1 with parallel=none"),
        ({"trainer": "flat", "parallel": "fsdp2"}, "parallel: got 'fsdp2'", "none or ddp with flat"),
        ({"trainer": "limited", "parallel": "ddp"}, "parallel: got 'ddp'", "none with limited"),
        ({"workload_options": "width=64"}, "workload_options: got", "only with a workload of your own"),
        *(
            (OWN | {"workload_options": text}, f"workload_options: got '{text}'", "")
            for text in ("width", "=3", "a b=3")
        ),
    ],
)
@pytest.mark.usefixtures("limited")
def test_refusals(values: dict[str, object], start: str, allowed: str) -> None:
    message = refusal(resolved, **values)
    assert message.startswith(start)
    assert allowed in message.partition(", allowed: ")[2]


def test_adapters_without_peft_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = "train: lora needs the package peft: pip install 'dpprof[models]'"
    assert refusal(resolved, train="lora") == said
    assert resolved(train="head").train == "head"


def test_a_trainer_refusal_lists_every_name_and_short_name() -> None:
    names = refusal(resolved, trainer="x").partition("allowed: ")[2].split(", ")
    assert names == [f"{info.short_name} ({info.name})" for info in BUILT_IN]


def test_a_foreign_workload_is_not_held_to_the_built_in_models_rules() -> None:
    assert resolved(workload="pkg:make", hidden_dim=10, num_heads=3).hidden_dim == 10


@pytest.mark.parametrize(
    ("content", "values", "why"),
    [
        (b"x" * 11, {"seq_len": 11}, "of more bytes than seq_len, which is 11"),
        (None, {}, "there is no such file"),
        (b"\xe9" * 600, {}, "cannot be read: 'utf-8' codec"),
        (b"x" * 600, {"vocab_size": 255}, "vocab_size: got '255', allowed: at least 256"),
    ],
)
def test_a_text_that_cannot_be_used(
    tmp_path: Path, content: bytes | None, values: dict[str, object], why: str
) -> None:
    text = tmp_path / "a text.txt"
    if content is not None:
        text.write_bytes(content)
    assert why in refusal(resolved, data=str(text), **values)
    text.write_text("é" * 300)
    assert resolved(data=str(text), vocab_size=256, seq_len=599).data == str(text)


def test_options_of_a_workload_of_ones_own() -> None:
    config = resolved(**OWN, workload_options="width=64, deep=true,name=a b,sizes=[1,2]")
    assert config.named_options == {"width": 64, "deep": True, "name": "a b", "sizes": [1, 2]}
    assert resolved().named_options == {}

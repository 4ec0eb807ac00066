from pathlib import Path

import pytest
from conftest import refusal

from dpprof.config.training import TrainingConfig
from dpprof.errors import ConfigError
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
        (
            {"trainer": "ghost", "model_size": "small", "batch_size": 16, "seq_len": 64},
            "DPGhostClippingTrainer_small_bs16_seq64",
        ),
        ({"trainer": "flat", "workload": "my.pkg:make_net"}, "DPSGDTrainer_make_net_bs4_seq512"),
        (
            {"model_size": "1b", "num_layers": "2", "hidden_dim": 64},
            "StandardTrainer_1b-hidden64-layers2_bs4_seq512",
        ),
        ({"workload": "my.pkg:net", "num_heads": 2}, "StandardTrainer_net-heads2_bs4_seq512"),
        ({"train": "lora", "lora_rank": 4, "num_heads": 2}, "StandardTrainer_mini-heads2-lora4_bs4_seq512"),
    ],
)
def test_run_name(given: dict[str, object], name: str) -> None:
    assert resolved(**given).run_name == name


def test_adapters_without_peft_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = "train: lora needs the package peft: pip install 'dpprof[models]'"
    assert refusal(resolved, train="lora") == said
    assert TrainingConfig(train="head").resolve(cuda_available=False).train == "head"


def test_sizes_that_are_still_to_be_taken_from_the_model_size_are_not_named() -> None:
    assert TrainingConfig().model_title == "auto"
    assert TrainingConfig(model_size="small", num_layers=3, num_heads=8).model_title == "small-layers3"
    assert TrainingConfig(hidden_dim=64).model_title == "auto-hidden64"


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("mine.nets:gpt", "gpt"),
        ("mine.nets:factory", "nets"),
        ("nets:make_model", "nets"),
        ("m:modeller", "modeller"),
    ],
)
def test_a_model_of_ones_own_is_named_for_its_factory_its_module_or_as_given(
    workload: str, name: str
) -> None:
    assert TrainingConfig(workload=workload).model_title == name
    assert TrainingConfig(workload=workload, train="head").model_title == f"{name}-head"
    assert TrainingConfig(workload=workload, model_name="net-2").run_name.startswith("StandardTrainer_net-2_")


@pytest.mark.parametrize(
    ("values", "start", "allowed"),
    [
        ({"model_name": "x"}, "model_name: got 'x'", "with any workload but SimpleBigModel"),
        (
            {"workload": "m:f", "model_name": "a b"},
            "model_name: got 'a b'",
            "letters, digits, '_', '-' and '.'",
        ),
        ({"device": "cuda"}, "device: got 'cuda'", "cpu or auto: torch finds no CUDA device"),
        ({"hidden_dim": 66}, "hidden_dim: got '66'", "a multiple of num_heads, which is 4"),
        ({"num_heads": 5}, "hidden_dim: got '128'", "a multiple of num_heads, which is 5"),
        ({"optimizer": "adamw", "momentum": "0.9"}, "momentum: got '0.9'", "0 with optimizer=adamw"),
        (
            {"workload": "package.module:factory", "activation_checkpointing": "true"},
            "activation_checkpointing: got 'True'",
            "false with any workload but SimpleBigModel",
        ),
        ({"workload": "Other"}, "workload: got 'Other'", "huggingface:NAME or package.module:factory"),
        ({"workload": "a b:c"}, "workload: got 'a b:c'", "huggingface:NAME or package.module:factory"),
        ({"precision": "tf32"}, "precision: got 'tf32'", "fp32 and bf16 on the CPU: tf32 needs CUDA"),
        ({"train": "bias,lora"}, "train: got 'bias,lora'", "lora alone: nothing else trains beside adapters"),
        ({"train": ""}, "train: got an empty text", "all, lora, bias, head or patterns of parameter names"),
        ({"lora_rank": 4}, "lora_rank: got '4'", "8 unless train=lora"),
        ({"train": "head", "lora_targets": "q"}, "lora_targets: got 'q'", "auto unless train=lora"),
        (
            {"train": "lora", "lora_targets": " , "},
            "lora_targets: got ','",
            "endings of the names of modules",
        ),
        ({"world_size": 2}, "world_size: got '2'", "1 with parallel=none"),
        ({"trainer": "flat", "parallel": "fsdp2"}, "parallel: got 'fsdp2'", "none or ddp with flat"),
        ({"trainer": "limited", "parallel": "ddp"}, "parallel: got 'ddp'", "none with limited"),
    ],
)
@pytest.mark.usefixtures("limited")
def test_refusals(values: dict[str, object], start: str, allowed: str) -> None:
    message = refusal(resolved, **values)
    assert message.startswith(f"{start}, allowed: ")
    assert allowed in message.removeprefix(f"{start}, allowed: ")


def test_a_trainer_refusal_lists_every_name_and_short_name() -> None:
    names = refusal(resolved, trainer="x").partition("allowed: ")[2].split(", ")
    assert names == [f"{info.short_name} ({info.name})" for info in BUILT_IN]


def test_a_foreign_workload_is_not_held_to_the_built_in_models_rules() -> None:
    config = TrainingConfig(workload="pkg:make", hidden_dim=10, num_heads=3)
    assert config.resolve(cuda_available=False).hidden_dim == 10


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
    found = TrainingConfig(data=str(text), vocab_size=256, seq_len=599).resolve(cuda_available=False)
    assert found.data == str(text)


def test_options_of_a_workload_of_ones_own() -> None:
    config = TrainingConfig(
        workload="pkg:factory", workload_options="width=64, deep=true,name=a b,sizes=[1,2]"
    )
    assert config.named_options == {"width": 64, "deep": True, "name": "a b", "sizes": [1, 2]}
    assert TrainingConfig().named_options == {}
    for text in ("width", "=3", "a b=3"):
        with pytest.raises(ConfigError, match="workload_options: got"):
            TrainingConfig(workload="pkg:factory", workload_options=text)
    with pytest.raises(ConfigError, match="only with a workload of your own"):
        TrainingConfig(workload_options="width=64")

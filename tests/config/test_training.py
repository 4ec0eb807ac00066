from pathlib import Path

import pytest

from dpprof.config.drive import DriveConfig
from dpprof.config.training import TrainingConfig, resolve_device
from dpprof.errors import ConfigError
from dpprof.settings import parse_all
from dpprof.vocabulary.trainers import BUILT_IN


def refusal(**values: object) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_all(TrainingConfig, values).resolve(cuda_available=False)
    return str(refused.value)


@pytest.mark.parametrize(
    ("cuda_available", "asked", "expected"),
    [
        (False, "auto", "cpu"),
        (True, "auto", "cuda"),
        (True, "cpu", "cpu"),
        (False, "cpu", "cpu"),
        (True, "cuda", "cuda"),
    ],
)
def test_device(cuda_available: bool, asked: str, expected: str) -> None:
    assert resolve_device(asked, cuda_available=cuda_available) == expected
    assert TrainingConfig(device=asked).resolve(cuda_available=cuda_available).device == expected


@pytest.mark.parametrize(
    ("cuda_available", "given", "expected"),
    [
        (False, {}, ("mini", 1_000, 128, 4, 4)),
        (True, {}, ("1b", 32_000, 2_048, 24, 32)),
        (True, {"device": "cpu"}, ("mini", 1_000, 128, 4, 4)),
        (False, {"model_size": "small"}, ("small", 8_000, 256, 4, 8)),
        (False, {"model_size": "medium", "num_layers": 1}, ("medium", 16_000, 512, 1, 8)),
        (False, {"vocab_size": 300, "hidden_dim": 6, "num_heads": 3}, ("mini", 300, 6, 4, 3)),
    ],
)
def test_resolve_fills_in_the_model(
    cuda_available: bool, given: dict[str, object], expected: tuple[object, ...]
) -> None:
    config = parse_all(TrainingConfig, given).resolve(cuda_available=cuda_available)
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
            {"trainer": "dpsgd_ghost", "model_size": "small", "batch_size": 16, "seq_len": 64},
            "DPGhostClippingTrainer_small_bs16_seq64",
        ),
        ({"trainer": "dpsgd", "workload": "my.pkg:make_net"}, "DPSGDTrainer_make_net_bs4_seq512"),
        (
            {"model_size": "1b", "num_layers": "2", "hidden_dim": 64},
            "StandardTrainer_1b-hidden64-layers2_bs4_seq512",
        ),
        ({"vocab_size": 300, "hidden_dim": 128}, "StandardTrainer_mini-vocab300_bs4_seq512"),
        ({"workload": "my.pkg:net", "num_heads": 2}, "StandardTrainer_net-heads2_bs4_seq512"),
        ({"train": "bias"}, "StandardTrainer_mini-bias_bs4_seq512"),
        ({"train": "lora", "lora_rank": 4, "num_heads": 2}, "StandardTrainer_mini-heads2-lora4_bs4_seq512"),
    ],
)
def test_run_name(given: dict[str, object], name: str) -> None:
    assert parse_all(TrainingConfig, given).resolve(cuda_available=False).run_name == name


def test_adapters_without_peft_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refusal(train="lora") == "train: lora needs the package peft: pip install 'dpprof[models]'"
    assert TrainingConfig(train="head").resolve(cuda_available=False).train == "head"


def test_sizes_that_are_still_to_be_taken_from_the_model_size_are_not_named() -> None:
    assert TrainingConfig().model_name == "auto"
    assert TrainingConfig(model_size="small", num_layers=3, num_heads=8).model_name == "small-layers3"
    assert TrainingConfig(hidden_dim=64).model_name == "auto-hidden64"


@pytest.mark.parametrize(
    ("values", "start", "allowed"),
    [
        ({"trainer": "adam"}, "trainer: got 'adam'", "DPSGDTrainer"),
        ({"batch_size": "0"}, "batch_size: got '0'", "a whole number of at least 1"),
        ({"seq_len": "1.5"}, "seq_len: got '1.5'", "a whole number of at least 1"),
        ({"precision": "fp16"}, "precision: got 'fp16'", "fp32, bf16"),
        ({"model_size": "huge"}, "model_size: got 'huge'", "auto, tiny, mini, small, medium, 1b"),
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
        ({"workload": "pkg:"}, "workload: got 'pkg:'", "huggingface:NAME or package.module:factory"),
        ({"workload": "a b:c"}, "workload: got 'a b:c'", "huggingface:NAME or package.module:factory"),
        (
            {"train": "lora", "activation_checkpointing": True},
            "activation_checkpointing: got 'True'",
            "false unless train=all",
        ),
        ({"train": ""}, "train: got an empty text", "all, lora, bias, head or a pattern of parameter names"),
        ({"lora_rank": 4}, "lora_rank: got '4'", "8 unless train=lora"),
        ({"train": "head", "lora_targets": "q"}, "lora_targets: got 'q'", "auto unless train=lora"),
        (
            {"train": "lora", "lora_targets": " , "},
            "lora_targets: got ','",
            "endings of the names of modules",
        ),
        ({"train": "lora", "lora_rank": 0}, "lora_rank: got '0'", "a whole number of at least 1"),
        ({"world_size": 2}, "world_size: got '2'", "1 with parallel=none"),
        ({"trainer": "flat", "parallel": "fsdp2"}, "parallel: got 'fsdp2'", "none or ddp with flat"),
        ({"trainer": "ew", "parallel": "ddp"}, "parallel: got 'ddp'", "none with ew"),
    ],
)
def test_refusals(values: dict[str, object], start: str, allowed: str) -> None:
    message = refusal(**values)
    assert message.startswith(f"{start}, allowed: ")
    assert allowed in message.removeprefix(f"{start}, allowed: ")


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("batch_size", 1),
        ("seq_len", 1),
        ("vocab_size", 0),
        ("hidden_dim", 0),
        ("num_layers", 0),
        ("num_heads", 0),
        ("momentum", 0),
        ("noise_multiplier", 0),
        ("accumulation_steps", 1),
        ("seed", 0),
    ],
)
def test_the_least_value_of_a_number(name: str, least: int) -> None:
    assert getattr(parse_all(TrainingConfig, {name: str(least)}), name) == least
    with pytest.raises(
        ConfigError, match=f"^{name}: got '{least - 1}', allowed: .* of at least {least}( and .*)?$"
    ):
        parse_all(TrainingConfig, {name: str(least - 1)})


@pytest.mark.parametrize(
    ("cls", "name"),
    [(TrainingConfig, "lr"), (TrainingConfig, "max_grad_norm"), (DriveConfig, "timeout_s")],
)
def test_numbers_above_zero(cls: type, name: str) -> None:
    assert getattr(parse_all(cls, {name: "1e-9"}), name) == 1e-9
    with pytest.raises(ConfigError, match=f"^{name}: got '0', allowed: a number above 0$"):
        parse_all(cls, {name: "0"})


def test_a_trainer_refusal_lists_every_name_and_short_name() -> None:
    names = refusal(trainer="x").partition("allowed: ")[2].split(", ")
    assert set(names) == {name for info in BUILT_IN for name in (info.name, info.short_name)}


def test_momentum_goes_with_sgd_and_zero_momentum_with_adamw() -> None:
    assert TrainingConfig(optimizer="sgd", momentum=0.9).momentum == 0.9
    assert TrainingConfig(optimizer="adamw", momentum=0.0).optimizer == "adamw"


def test_a_foreign_workload_is_not_held_to_the_built_in_models_rules() -> None:
    config = TrainingConfig(workload="pkg:make", hidden_dim=10, num_heads=3)
    assert config.resolve(cuda_available=False).hidden_dim == 10


def test_a_text_needs_more_bytes_than_one_sample(tmp_path: Path) -> None:
    text = tmp_path / "a text.txt"
    text.write_text("x" * 11)
    assert TrainingConfig(data=str(text), seq_len=10).data == str(text)
    message = refusal(data=str(text), seq_len=11)
    assert message.startswith(f"data: got '{text}', allowed: random, zipf, or the path of a UTF-8 text file")
    assert message.endswith("of more bytes than seq_len, which is 11")


def test_a_missing_text(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path):
        message = refusal(data=str(path))
        assert message.startswith(f"data: got '{path}', allowed: random, zipf, or the path of a UTF-8 text")
        assert message.endswith("there is no such file")


def test_a_text_that_is_not_utf8(tmp_path: Path) -> None:
    text = tmp_path / "latin.txt"
    text.write_bytes("é".encode("latin-1") * 600)
    message = refusal(data=str(text))
    assert message.startswith(f"data: got '{text}', allowed: random, zipf, or the path of a UTF-8 text file")
    assert "cannot be read: 'utf-8' codec" in message


def test_a_text_needs_a_vocabulary_of_all_bytes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("é" * 600)
    message = refusal(data=str(text), vocab_size=255)
    assert message == "vocab_size: got '255', allowed: at least 256 with a text file (byte tokens)"
    assert TrainingConfig(data=str(text), vocab_size=256).resolve(cuda_available=False).vocab_size == 256


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

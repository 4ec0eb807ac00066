"""What people train: weights in bf16, adapters in fp32, checkpointing, Adafactor, frozen parts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import product
from example_config import experiment
from example_families import SMALL, peak, small, unchanged
from example_runs import kept, known, measured

from dpprof.config.estimating import ESTIMATE, EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, parse_experiment
from dpprof.errors import ConfigError
from dpprof.measure.gradient_check import check_gradient
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.figures.capacity import assumptions
from dpprof.record.figures.figures import Figures
from dpprof.record.figures.ledger import flops_in_theory, flops_of_layers
from dpprof.record.figures.verdicts import PASS, judge_gradient
from dpprof.record.record import Record
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

OF_TEXT = [name for name in SMALL if name not in ("vit-base", "resnet-50", "whisper-base")]
LORA: dict[str, Any] = {"train": "lora", "weights_dtype": "bf16"}
CHECKPOINTED: dict[str, Any] = {"activation_checkpointing": True}
# By name: settings of a training, none of which keeps a trainer from the right gradient.
WAYS: dict[str, dict[str, Any]] = {
    "bf16": {"weights_dtype": "bf16"},
    "LoRA": LORA,
    "bf16 LoRA": LORA | {"adapter_dtype": "bf16"},
    "both": LORA | {"precision": "bf16"},
    "checkpointed": CHECKPOINTED,
    "LoRA, checkpointed": LORA | CHECKPOINTED | {"optimizer": "adafactor"},
    "Adafactor": {"optimizer": "adafactor"},
}
CHANNELS_LAST = {"channels_last": True}
TAKING_CHANNELS_LAST = ("Standard", "DPBookKeeping", "DPMixedGhost")


def built_in(**settings: Any) -> ExperimentConfig:
    sizes = {"vocab_size": 50, "hidden_dim": 16, "num_layers": 3, "num_heads": 2}
    config = experiment(model_size="tiny", batch_size=3, seq_len=8, device="cpu", **sizes, **settings)
    return config.resolve(cuda_available=False)


OF_IMAGES = [("bf16", "DPSGDTrainer", "resnet-50")]
OF_IMAGES += [("channels last", f"{trainer}Trainer", "resnet-50") for trainer in TAKING_CHANNELS_LAST]


@pytest.mark.parametrize(
    ("way", "trainer", "family"), product(WAYS, DEFAULT_TRAINERS, OF_TEXT, always=OF_IMAGES)
)
def test_the_gradient_is_right_and_the_peak_as_estimated(way: str, trainer: str, family: str) -> None:
    settings = WAYS.get(way, CHANNELS_LAST)
    config = small(family, trainer=trainer, **settings)
    found = check_gradient(config)
    assert judge_gradient(found).word == PASS, found
    is_short = "bf16" in settings.values()
    assert (found.relative_error_bf16 is None) == (not is_short)
    assert peak(config, is_fake=True) == peak(config, is_fake=False)


@pytest.mark.parametrize(("trainer", "train"), product(DEFAULT_TRAINERS, ["lora", "all", "!*embedding*"]))
def test_the_built_in_model_checkpoints_behind_frozen_embeddings(trainer: str, train: str) -> None:
    config = built_in(trainer=trainer, train=train, **CHECKPOINTED)
    assert judge_gradient(check_gradient(config)).word == PASS
    assert peak(config, is_fake=True) == peak(config, is_fake=False)


def test_checkpointing_saves_what_it_computes_again() -> None:
    """Of two layers of 8 x 64 tokens, one's activations go: more than the layers' inputs, which are kept."""
    for trainer in ("StandardTrainer", "DPGhostClippingTrainer", "DPMixedGhostTrainer"):
        config = small("qwen", trainer=trainer, batch_size=8, seq_len=64, **LORA)
        kept = peak(config, is_fake=True)
        saved = kept - peak(dataclasses.replace(config, **CHECKPOINTED), is_fake=True)
        assert saved > 4 * 8 * 64 * 128 * 2, trainer


def test_rounding_of_the_naive_loop_itself_is_no_fault_of_a_trainer() -> None:
    found = check_gradient(small("resnet-50", trainer="DPBookKeepingTrainer", weights_dtype="bf16"))
    assert known(found.relative_error_bf16) > 0.05
    assert known(found.relative_error_bf16) < 2 * found.rounding["bfloat16"]
    verdict = judge_gradient(found)
    assert verdict.word == PASS
    assert f"in bf16 (the naive loop itself by {found.rounding['bfloat16']:.1e})" in verdict.reason
    found.relative_error_bf16 = 3 * found.rounding["bfloat16"]
    assert judge_gradient(found).word == "fail"
    assert check_gradient(small("qwen", weights_dtype="bf16")).rounding == {}


def test_adafactor_keeps_a_row_and_a_column() -> None:
    """And the count of its steps, of four bytes, for each parameter."""
    config = small("qwen", optimizer="adafactor", passes="clean,memory")
    parameters = list(build_workload(config).model.parameters())
    sizes = [sum(p.shape) if p.dim() > 1 else p.numel() for p in parameters]
    held = kept(config, is_fake=True).account.at_peak["optimizer_state"]
    assert held == sum(4 * (size + 1) for size in sizes)


def test_channels_last_is_how_images_and_their_weights_are_stored() -> None:
    config = small("resnet-50", **CHANNELS_LAST)
    workload = build_workload(config)
    inputs, _ = next(iter(workload.batches))
    weights = [p for p in workload.model.parameters() if p.dim() == 4]
    stored = [tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (inputs, *weights)]
    assert all(stored)
    assert workload.changed[-1].startswith("channels_last: images")
    assert "resnet-50-channels-last" in config.run_name
    with pytest.raises(ConfigError, match=r"channels_last: got 'True', .*no convolution over images"):
        build_workload(small("gpt2", **CHANNELS_LAST))


def test_the_state_of_8_bit_adamw_is_its_formula() -> None:
    """Two bytes a number and two float32 a block of 256, from 4,096 numbers on; else two float32 a number."""
    settings = SMALL["qwen"] | {"workload": "huggingface:qwen", "optimizer": "adamw8bit", "seq_len": 16}
    config = experiment(**settings, passes="estimate", device="cpu").resolve(cuda_available=False)
    numbers = [p.numel() for p in build_workload(config).model.parameters()]
    large = [number for number in numbers if number >= 4096]
    assert len(numbers) > len(large) > 1
    of_each = [2 * number + 8 * -(-number // 256) if number in large else 8 * number for number in numbers]
    found = kept(config, is_fake=True)
    assert found.account.at_peak["optimizer_state"] == sum(of_each) + 2 * 4 * 256
    told = assumptions(config, found.result)
    assert any("state is a formula, that of bitsandbytes" in text for text in told)
    with pytest.raises(ConfigError, match="optimizer: got 'adamw8bit', allowed: sgd, adamw, adafactor: "):
        experiment(**settings, device="cpu").resolve(cuda_available=False)


def test_what_cannot_be_checkpointed_is_refused_by_name() -> None:
    allowed = "allowed: false with ResNetForImageClassification, which transformers does not checkpoint"
    with pytest.raises(ConfigError, match=f"activation_checkpointing: got 'True', {allowed}"):
        build_workload(small("resnet-50", **CHECKPOINTED))
    with pytest.raises(ConfigError, match="with any workload but SimpleBigModel and huggingface:NAME"):
        experiment(workload="example_workloads:mlp", **CHECKPOINTED)


@pytest.mark.parametrize(
    ("family", "numbers"),
    [("qwen2.5-7b", 7_615_616_512), ("llama-3.1-8b", 8_030_261_248), ("phi-1.5", 1_418_270_720)],
)
def test_families_have_as_many_parameters_as_their_authors_say(family: str, numbers: int) -> None:
    """Those of the weights' files on the hub."""
    config = dataclasses.replace(small("qwen", model_config=""), workload=f"huggingface:{family}", seq_len=8)
    with torch.device("meta"):
        model = unchanged(config)
    assert sum(p.numel() for p in model.parameters()) == numbers


def test_tf32_holds_the_bytes_of_fp32_and_multiplies_faster(tmp_path: Path) -> None:
    """On a GPU with units for it; on one without, nothing changes, and the estimate says what it assumes."""
    settings = {"model_size": "small", "batch_size": 256, "seq_len": 512, "device": "cuda", "savings": False}
    records: dict[tuple[str, str], Record] = {}
    for target in ("A100-40GB", "V100-32GB"):
        for precision in ("fp32", "tf32"):
            config = parse_experiment(settings | {"target": target, "precision": precision}, EstimatingConfig)
            resolved = config.resolve(cuda_available=True)
            records[target, precision] = measured(tmp_path / target / precision, resolved)
    for target, is_faster in (("A100-40GB", True), ("V100-32GB", False)):
        in_fp32, in_tf32 = (known(Figures.of(records[target, each]).estimate) for each in ("fp32", "tf32"))
        assert in_fp32.needed_mib == in_tf32.needed_mib
        seconds = [known(each.step.seconds) for each in (in_tf32, in_fp32)]
        assert (seconds[0] < seconds[1]) == is_faster
        record = records[target, "tf32"]
        assumed = " ".join(assumptions(from_flat(record.config), known(record.ledger)))
        assert ("product as in bfloat16" in assumed) == is_faster
    assert torch.get_float32_matmul_precision() == "highest"


BATCH = 4
ADAPTED = 6  # the linear layers of one block
# peft multiplies what an adapter gives by its scale. Autograd keeps that number in a tensor of 8 bytes on the
# CPU, which no dispatch mode gets to see.
SCALE = 8


ONE_BLOCK = {"model_size": "tiny", "num_layers": 1, "batch_size": BATCH, "seq_len": 16, "device": "cpu"}
THEIR_TRAINERS = ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer", "DPMixedGhostTrainer"]


@pytest.mark.parametrize(("trainer", "train"), product(THEIR_TRAINERS, ["head", "lora"]))
def test_memory_and_flops_of_what_trains(trainer: str, train: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = ONE_BLOCK | {"trainer": trainer, "train": train, "lr": 0.5}
    few: dict[str, Any] = {"passes": "clean,memory,ledger", "warmup_steps": 1, "measured_steps": 2}
    found = measured(tmp_path / "measured", **few, **settings)
    estimated = measured(tmp_path / "estimated", passes=ESTIMATE, savings=False, **settings)
    ledger = known(found.ledger)
    assert known(estimated.ledger).at_peak == ledger.at_peak
    unseen = SCALE * ADAPTED if train == "lora" else 0
    assert found.memory.peak_allocated == known(estimated.memory.peak_allocated) + unseen
    trainable = 4 * sum(group.numbers for group in found.parameters if group.trains)
    assert found.held["gradients"] == trainable
    if trainer == "DPSGDTrainer":
        assert found.held["per_sample_gradients"] == BATCH * trainable
    groups = [[(g.kind, g.numbers) for g in record.parameters] for record in (found, estimated)]
    assert groups[0] == groups[1]
    assert {group.moved for group in found.parameters} == {False, True}
    assert {group.moved for group in estimated.parameters} == {None}
    in_theory = flops_in_theory(found, ledger)
    assert in_theory == pytest.approx(flops_of_layers(ledger), rel=0.02)  # norms are not in theory

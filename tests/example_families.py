"""Hugging Face families at two layers, small enough for tests."""

from typing import Any

from example_runs import kept
from torch import nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.training import family_of
from dpprof.measure.workloads.huggingface.factory import build_model
from dpprof.vocabulary.huggingface import HuggingFaceOptions

_TEXT = "num_hidden_layers=2,hidden_size=64,num_attention_heads=4,intermediate_size=128,vocab_size=100"
# By family: the changes of its config, and other settings.
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"model_config": "n_layer=2,n_embd=64,n_head=2,vocab_size=100"},
    "opt-125m": {
        "model_config": "num_hidden_layers=2,hidden_size=64,word_embed_proj_dim=64,ffn_dim=128,"
        "num_attention_heads=2,vocab_size=100"
    },
    "phi-1.5": {"model_config": f"{_TEXT},num_key_value_heads=4"},
    "stablelm-3b": {"model_config": _TEXT},
    "bert-base": {"model_config": _TEXT},
    "roberta-base": {"model_config": _TEXT},
    "llama-1b": {"model_config": f"{_TEXT},num_key_value_heads=2,head_dim=16"},
    "qwen": {"model_config": f"{_TEXT},num_key_value_heads=2"},
    "vit-base": {
        "model_config": "num_hidden_layers=2,hidden_size=64,num_attention_heads=2,intermediate_size=128",
        "image_size": 32,
    },
    "resnet-50": {"model_config": "embedding_size=16,hidden_sizes=[64,128],depths=[1,1]", "image_size": 32},
    "whisper-base": {
        "model_config": "encoder_layers=2,d_model=64,encoder_attention_heads=2,encoder_ffn_dim=128,"
        "max_source_positions=50"
    },
}


def small(family: str, **settings: Any) -> ExperimentConfig:
    """An experiment with a small model of a family."""
    given = {"workload": f"huggingface:{family}", "batch_size": 3, "seq_len": 16, "device": "cpu"}
    values = given | SMALL[family] | settings
    return parse_experiment(values, MeasuringConfig).resolve(cuda_available=False)


def changed(family: str, changes: str, **settings: Any) -> ExperimentConfig:
    """A small experiment with more changes to its config."""
    return small(family, model_config=f"{SMALL[family]['model_config']},{changes}", **settings)


def unchanged(config: ExperimentConfig) -> nn.Module:
    """The model as transformers makes it."""
    name, options = config.of_listed, config.options_of(HuggingFaceOptions)
    family = family_of(name)
    task = family.task if options.task == "auto" else options.task
    return build_model(name, family, task, options, config.weights_dtype)


def peak(config: ExperimentConfig, *, is_fake: bool) -> int:
    """That of one step by the ledger, in bytes, measured or on fake tensors."""
    return kept(config, is_fake=is_fake).account.peak

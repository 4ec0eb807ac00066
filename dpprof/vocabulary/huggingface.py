"""Hugging Face models that can be trained by name; free of torch and transformers.

`workload=huggingface:NAME`: a family, a config file, or a folder with a config and weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpprof.vocabulary.settings import setting

CAUSAL_LM, CLASSIFICATION = "causal-lm", "classification"
TEXT, IMAGES, AUDIO = "text", "images", "audio"
CONFIG_FILE = "config.json"
_IMAGE_TYPES = ("vit", "resnet", "deit", "convnext", "swin", "dinov2")
_AUDIO_TYPES = ("whisper",)
_IMAGENET = {"num_labels": 1000}


@dataclass(frozen=True)
class Family:
    """A kind of model: `model_type` in transformers, changes to its default config, and default task."""

    model_type: str
    task: str
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def inputs(self) -> str:
        """Kind of the model's input."""
        if self.model_type in _IMAGE_TYPES:
            return IMAGES
        return AUDIO if self.model_type in _AUDIO_TYPES else TEXT


FAMILIES: dict[str, Family] = {
    "gpt2": Family("gpt2", CAUSAL_LM),
    "gpt2-medium": Family("gpt2", CAUSAL_LM, {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": Family("gpt2", CAUSAL_LM, {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "opt-125m": Family("opt", CAUSAL_LM),
    "bert-base": Family("bert", CLASSIFICATION),
    "roberta-base": Family(
        "roberta",
        CLASSIFICATION,
        {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "llama": Family("llama", CAUSAL_LM),
    "llama-1b": Family(
        "llama",
        CAUSAL_LM,
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
    "qwen": Family(
        "qwen2",
        CAUSAL_LM,
        {
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    "vit-base": Family("vit", CLASSIFICATION, _IMAGENET),
    "resnet-50": Family("resnet", CLASSIFICATION, _IMAGENET),
    "whisper-base": Family(
        "whisper",
        CLASSIFICATION,
        {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048},
    ),
}
NAMED_HELP = f"a family ({', '.join(FAMILIES)}), or the path of a config.json or of a folder that has one"


@dataclass(frozen=True)
class HuggingFaceOptions:
    """Settings of `workload=huggingface:NAME`."""

    task: str = setting(
        "auto",
        "Head of the model, loss and batches; auto is the family's own.",
        choices=("auto", CAUSAL_LM, CLASSIFICATION),
    )
    model_config: str = setting(
        "", "Changes to the model's config: name=value,name=value, as n_layer=2,n_embd=64."
    )
    image_size: int = setting(0, "Side of an image in pixels; 0 is the config's, else 224.", minimum=0)
    adapt: bool = setting(
        True, "Change of the model what DP trainers cannot train; false refuses such a model instead."
    )

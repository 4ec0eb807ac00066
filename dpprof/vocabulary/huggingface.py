"""Hugging Face models that can be trained by name; free of torch and transformers.

`workload=huggingface:NAME`: a family, a config file, or a folder with a config and weights.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpprof.vocabulary.settings import setting

CAUSAL_LM, CLASSIFICATION = "causal-lm", "classification"
TEXT, IMAGES, AUDIO = "text", "images", "audio"
CONFIG_FILE = "config.json"
_IMAGE_TYPES = ("vit", "resnet", "deit", "convnext", "swin", "dinov2")
_AUDIO_TYPES = ("whisper",)


@dataclass(frozen=True)
class Family:
    """A kind of model: `model_type` in transformers, changes to its default config, and default task.

    `source` names the model on the hub of Hugging Face whose config it is.
    """

    model_type: str
    task: str
    config: Mapping[str, object] = field(default_factory=dict)
    source: str = ""

    @property
    def inputs(self) -> str:
        """Kind of the model's input."""
        if self.model_type in _IMAGE_TYPES:
            return IMAGES
        return AUDIO if self.model_type in _AUDIO_TYPES else TEXT


FAMILIES = {
    name: Family(**family)
    for name, family in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
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

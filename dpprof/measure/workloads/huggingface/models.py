"""Builds a model of transformers from its config, with random weights or those of a local folder; asks no
server.
"""

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from dpprof.config.huggingface import config_file
from dpprof.errors import ConfigError, WorkloadError
from dpprof.measure.workloads.factory import first_line
from dpprof.settings import assignments
from dpprof.vocabulary.huggingface import (
    AUDIO,
    CAUSAL_LM,
    FAMILIES,
    IMAGES,
    Family,
    HuggingFaceOptions,
)

# The implementation of attention that full sequences get: torch's, without the masks that these do not need.
FULL_SEQUENCES = "sdpa_of_full_sequences"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


@cache
def transformers() -> ModuleType:
    """The package, which asks no server."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    package = importlib.import_module("transformers")
    package.logging.set_verbosity_error()
    _import_generation()
    attention = importlib.import_module("transformers.integrations.sdpa_attention")
    package.AttentionInterface.register(FULL_SEQUENCES, attention.sdpa_attention_forward)
    return package


def _import_generation() -> None:
    """Import what every model of transformers imports, without scikit-learn: it takes a second, for a way to
    generate text.
    """
    utils: Any = importlib.import_module("transformers.utils")
    is_available, utils.is_sklearn_available = utils.is_sklearn_available, lambda: False
    try:
        importlib.import_module("transformers.generation.candidate_generator")
        importlib.import_module("transformers.models.auto.modeling_auto")
    finally:
        utils.is_sklearn_available = is_available


def config_of(name: str, family: Family, options: HuggingFaceOptions) -> Any:
    """The config of transformers, with the changes asked for.

    Raises ConfigError, which names the option, for what transformers refuses, or has no such setting.
    """
    folder = None if name in FAMILIES else config_file(name).parent
    changes = assignments("model_config", options.model_config)
    if family.inputs == IMAGES and options.image_size:
        changes.setdefault("image_size", options.image_size)
    try:
        if name in FAMILIES:
            config = transformers().AutoConfig.for_model(family.model_type, **family.config)
        else:
            config = transformers().AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        raise ConfigError(f"workload: transformers cannot use the config of {name}: {error}") from error
    for key, value in changes.items():
        if not hasattr(config, key) and key not in ("image_size", "num_labels"):
            raise ConfigError(f"model_config: {type(config).__name__} has no setting {key}")
        try:
            setattr(config, key, value)
        except Exception as error:
            raise ConfigError(f"model_config: got {key}={value}: {error}") from error
    return config


def build_model(name: str, family: Family, task: str, options: HuggingFaceOptions) -> nn.Module:
    """The model, in training mode, with the weights of the folder that it was named by, if there are any.

    Raises ConfigError or WorkloadError for a model that cannot be built.
    """
    made = config_of(name, family, options)
    made.use_cache = False
    attention = {"attn_implementation": FULL_SEQUENCES if task == CAUSAL_LM else "sdpa"}
    if family.model_type == "resnet":
        attention = {}
    auto = _auto_class(family, task)
    try:
        model: nn.Module = auto.from_config(made, **attention)
        folder = Path(name)
        if name not in FAMILIES and folder.is_dir() and any((folder / file).exists() for file in _WEIGHTS):
            _load(model, folder)
    except ValueError as error:
        raise WorkloadError(
            f"transformers cannot build {family.model_type} for task={task}: {first_line(error)}"
        ) from error
    return model.train()


def _auto_class(family: Family, task: str) -> Any:
    package = transformers()
    if task == CAUSAL_LM:
        return package.AutoModelForCausalLM
    if family.inputs == IMAGES:
        return package.AutoModelForImageClassification
    if family.inputs == AUDIO:
        return package.AutoModelForAudioClassification
    return package.AutoModelForSequenceClassification


def _load(model: nn.Module, folder: Path) -> None:
    """Weights from a folder's safetensors; fake tensors have none to load."""
    if any(isinstance(parameter, FakeTensor) for parameter in model.parameters()):
        return
    loaded = type(model).from_pretrained(folder, config=model.config, local_files_only=True)  # type: ignore[attr-defined]
    model.load_state_dict(loaded.state_dict())

"""The factory of `workload=huggingface:NAME`: model, batches, loss, and the changes made for DP.

Models are built offline, with random weights or those of a local folder.
"""

import importlib
import inspect
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import AUTO, config_file, family_of
from dpprof.errors import ConfigError, WorkloadError, refuse
from dpprof.measure.workloads.data import get_random_dataloader
from dpprof.measure.workloads.factory import first_line
from dpprof.measure.workloads.huggingface.adapt import adapt
from dpprof.measure.workloads.trainable import freeze_others
from dpprof.measure.workloads.workload import Workload
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.huggingface import AUDIO, CAUSAL_LM, FAMILIES, IMAGES, Family, HuggingFaceOptions
from dpprof.vocabulary.precision import BF16, FP32, short_dtype
from dpprof.vocabulary.settings import assignments
from dpprof.vocabulary.trainers import trainer_info

# Attention for full sequences: torch's, without the masks that these do not need.
FULL_SEQUENCES = "sdpa_of_full_sequences"
EAGER, SDPA = "eager", "sdpa"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_IMAGE_SIZE = 224
# The names of a config's setting of the type of the weights, the second one of earlier versions.
_DTYPE = {"dtype", "torch_dtype"}
_DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
_OWN_DTYPE = (
    "the configuration's own dtype, {name}, makes weights in {short}, and gradients and optimizer state with "
    "them; --weights-dtype fp32 makes them fp32"
)
_NOT_OWN_DTYPE = "the configuration's own dtype is {name}; weights are in {wanted}, as weights_dtype says"
# By position where possible: Opacus's expanded weights take nothing by name.
Batch = tuple[Tensor | tuple[Tensor, ...] | dict[str, Tensor], Tensor]
# The shortest sequence of a padded batch, as a share of the longest.
SHORTEST = 0.25


def hugging_face(config: ExperimentConfig) -> Workload:
    """Build the workload. Raises ConfigError or WorkloadError for a model that cannot train so."""
    options = config.options_of(HuggingFaceOptions)
    name = config.of_listed
    family = family_of(name)
    task = family.task if options.task == "auto" else options.task
    model: Any = build_model(name, family, task, options, config.weights_dtype)
    freeze_others(model, config.train)
    changed = adapt(model, config.trainer, is_allowed=options.adapt)
    if config.activation_checkpointing:
        _checkpoint(model, is_reentrant=trainer_info(config.trainer).is_reentrant)
    if family.inputs in (IMAGES, AUDIO):
        signals = signal_batches(config, _shape(family, options, model), model.config.num_labels, model.dtype)
        made = Workload(model, signals, label_loss, None, changed)
    else:
        made = _of_text(config, task, model, changed)
    return made._replace(warnings=tuple(_own_dtype(name, family, options, config.weights_dtype)))


def _checkpoint(model: Any, *, is_reentrant: bool) -> None:
    """Let backward compute each layer's activations again. Raises ConfigError for a model that cannot."""
    if not model.supports_gradient_checkpointing:
        others = f"false with {type(model).__name__}, which transformers does not checkpoint"
        raise refuse("activation_checkpointing", True, others)
    model.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
    if is_reentrant:  # behind frozen embeddings its checkpoints would pass no gradient on
        model.enable_input_require_grads()


def _own_dtype(name: str, family: Family, options: HuggingFaceOptions, wanted: str) -> Iterator[str]:
    """Yield a sentence on a type of weights that the config names itself: that it is taken, or not."""
    own = config_of(name, family, options).dtype
    if not isinstance(own, torch.dtype) or assignments("model_config", options.model_config).keys() & _DTYPE:
        return
    long, short = str(own).removeprefix("torch."), short_dtype(str(own))
    if wanted not in (AUTO, short):
        yield _NOT_OWN_DTYPE.format(name=long, wanted=wanted)
    elif wanted == AUTO and short != FP32:
        yield _OWN_DTYPE.format(name=long, short=short)


def _of_text(config: ExperimentConfig, task: str, model: Any, changed: tuple[str, ...]) -> Workload:
    _check_length(config, model)
    made, tokens = model.config, config.batch_size * config.seq_len
    if task == CAUSAL_LM:
        next_tokens = next_token_batches(config, made.vocab_size, made.pad_token_id)
        return Workload(model, next_tokens, next_token_loss, tokens, changed)
    if made.pad_token_id is None:
        made.pad_token_id = 0
    arguments = list(inspect.signature(model.forward).parameters)
    padded = padded_text_batches(config, made.vocab_size, made.pad_token_id, made.num_labels, arguments)
    return Workload(model, padded, label_loss, tokens, changed)


def _shape(family: Family, options: HuggingFaceOptions, model: Any) -> tuple[int, ...]:
    made = model.config
    if family.inputs == AUDIO:
        return made.num_mel_bins, 2 * made.max_source_positions
    side = options.image_size or getattr(made, "image_size", None) or _IMAGE_SIZE
    return made.num_channels, side, side


def _check_length(config: ExperimentConfig, model: nn.Module) -> None:
    made: Any = model.config
    longest = getattr(made, "max_position_embeddings", None) or getattr(made, "n_positions", None)
    if made.model_type == "roberta" and longest:
        longest -= made.pad_token_id + 1  # its positions begin after the padding's
    if longest and config.seq_len > longest:
        raise refuse("seq_len", config.seq_len, f"at most {longest}, the positions of {made.model_type}")


def next_token_batches(
    config: ExperimentConfig, vocab_size: int, padding: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield full token sequences and their next tokens, both (B, T), without the padding token."""
    for pair in get_random_dataloader(
        config.batch_size, config.seq_len, vocab_size, config.device, data=config.data, seed=config.seed
    ):
        ids, labels = (
            t if padding is None else t.where(t != padding, (padding + 1) % vocab_size) for t in pair
        )
        yield ids, labels


def padded_text_batches(
    config: ExperimentConfig, vocab_size: int, padding: int, num_labels: int, arguments: Sequence[str]
) -> Iterator[Batch]:
    """Yield sequences with uniform lengths from seq_len / 4 to seq_len, padded, with mask and labels."""
    by_position = list(arguments[:2]) == ["input_ids", "attention_mask"]
    generator = torch.Generator(config.device).manual_seed(config.seed)
    for ids, _ in next_token_batches(config, vocab_size, padding):
        lengths = _drawn(max(1, int(SHORTEST * config.seq_len)), config.seq_len + 1, ids, generator)
        mask = (torch.arange(config.seq_len, device=ids.device) < lengths.unsqueeze(1)).long()
        labels = _drawn(0, num_labels, ids, generator)
        padded = ids.where(mask.bool(), padding)
        inputs = (padded, mask) if by_position else {"input_ids": padded, "attention_mask": mask}
        yield inputs, labels


def signal_batches(
    config: ExperimentConfig, shape: tuple[int, ...], num_labels: int, dtype: torch.dtype
) -> Iterator[Batch]:
    """Yield normally distributed images or spectrograms of a shape and a type, and a label for each."""
    generator = torch.Generator(config.device).manual_seed(config.seed)
    while True:
        size = (config.batch_size, *shape)
        inputs = torch.randn(size, generator=generator, device=config.device, dtype=dtype)
        yield inputs, _drawn(0, num_labels, inputs, generator)


def next_token_loss(outputs: Any, labels_BT: Tensor) -> Tensor:
    """Return the cross-entropy averaged over each sequence's tokens, shape (B,).

    Like transformers' own loss it computes in float32 at least.
    """
    logits = outputs.logits.float() if outputs.logits.element_size() < 4 else outputs.logits
    losses = F.cross_entropy(logits.flatten(0, 1), labels_BT.flatten(), reduction="none")
    return losses.view(labels_BT.shape).mean(dim=1)


def label_loss(outputs: Any, labels_B: Tensor) -> Tensor:
    """Return the cross-entropy of each sample, shape (B,)."""
    return F.cross_entropy(outputs.logits, labels_B, reduction="none")


def _drawn(low: int, high: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high, like.shape[:1], generator=generator, device=like.device)


@cache
def transformers() -> ModuleType:
    """Import transformers in offline mode."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    package = importlib.import_module("transformers")
    package.logging.set_verbosity_error()
    # What all models need, but not scikit-learn, a slow import used only to generate text.
    with patch("transformers.utils.is_sklearn_available", lambda: False):
        importlib.import_module("transformers.generation.candidate_generator")
        importlib.import_module("transformers.models.auto.modeling_auto")
    attention = importlib.import_module("transformers.integrations.sdpa_attention")
    package.AttentionInterface.register(FULL_SEQUENCES, attention.sdpa_attention_forward)
    return package


def config_of(name: str, family: Family, options: HuggingFaceOptions) -> Any:
    """Return the transformers config with the requested changes. Raises ConfigError, naming the option."""
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
    for name_given, value in changes.items():
        is_attention = name_given.removeprefix("_") == "attn_implementation"
        key = "_attn_implementation" if is_attention else name_given
        known = hasattr(config, "num_attention_heads" if is_attention else key)
        if not known and key not in ("image_size", "num_labels"):
            raise ConfigError(f"model_config: {type(config).__name__} has no setting {name_given}")
        if type(value) is int and isinstance(getattr(config, key, None), float):
            value = float(value)
        try:
            setattr(config, key, value)
        except Exception as error:
            raise ConfigError(f"model_config: got {key}={value}: {error}") from error
    attention = config._attn_implementation
    if attention not in (None, EAGER, SDPA):
        raise refuse("model_config", f"attn_implementation={attention}", f"{EAGER} and {SDPA}")
    return config


def build_model(
    name: str, family: Family, task: str, options: HuggingFaceOptions, weights_dtype: str
) -> nn.Module:
    """Build the model for training, with its folder's weights if any. Raises ConfigError or WorkloadError."""
    made = config_of(name, family, options)
    if weights_dtype != AUTO:
        if changed := assignments("model_config", options.model_config).keys() & _DTYPE:
            only = f"{AUTO} with model_config={options.model_config}, which sets {listed(sorted(changed))}"
            raise refuse("weights_dtype", weights_dtype, only)
        made.dtype = _DTYPES[weights_dtype]
    if task == CAUSAL_LM and made._attn_implementation != EAGER:
        made._attn_implementation = FULL_SEQUENCES
    what = {IMAGES: "Image", AUDIO: "Audio"}.get(family.inputs, "Sequence") + "Classification"
    auto = getattr(transformers(), f"AutoModelFor{'CausalLM' if task == CAUSAL_LM else what}")
    try:
        model: nn.Module = auto.from_config(made)
        folder = Path(name)
        if name not in FAMILIES and folder.is_dir() and any((folder / file).exists() for file in _WEIGHTS):
            _load(model, folder)
    except ValueError as error:
        raise WorkloadError(
            f"transformers cannot build {family.model_type} for task={task}: {first_line(error)}"
        ) from error
    return model.train()


def _load(model: nn.Module, folder: Path) -> None:
    """Load weights from a folder's safetensors; fake tensors have none to load."""
    if any(isinstance(parameter, FakeTensor) for parameter in model.parameters()):
        return
    loaded = type(model).from_pretrained(folder, config=model.config, local_files_only=True)  # type: ignore[attr-defined]
    model.load_state_dict(loaded.state_dict())

"""The factory of `workload=huggingface:NAME`: model, batches and loss, and what was changed for DP."""

import inspect
from typing import Any

from torch import nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.huggingface import family_of
from dpprof.measure.workloads.huggingface import batches
from dpprof.measure.workloads.huggingface.adapt import adapt
from dpprof.measure.workloads.huggingface.models import build_model
from dpprof.measure.workloads.workload import Workload
from dpprof.settings import refuse
from dpprof.vocabulary.huggingface import AUDIO, CAUSAL_LM, IMAGES, Family, HuggingFaceOptions
from dpprof.vocabulary.trainable import BIAS, LORA

_IMAGE_SIZE = 224


def hugging_face(config: ExperimentConfig) -> Workload:
    """The workload. Raises ConfigError or WorkloadError for what cannot be built or trained so."""
    options = config.options_of(HuggingFaceOptions)
    name = config.of_listed
    family = family_of(name)
    task = family.task if options.task == "auto" else options.task
    model: Any = build_model(name, family, task, options)
    frozen = config.train in (LORA, BIAS)
    changed = adapt(model, config.trainer, is_allowed=options.adapt, ties_are_frozen=frozen)
    if family.inputs in (IMAGES, AUDIO):
        signals = batches.of_signals(config, _shape(family, options, model), model.config.num_labels)
        return Workload(model, signals, batches.label_loss, None, changed)
    return _of_text(config, task, model, changed)


def _of_text(config: ExperimentConfig, task: str, model: Any, changed: tuple[str, ...]) -> Workload:
    _check_length(config, model)
    made, tokens = model.config, config.batch_size * config.seq_len
    if task == CAUSAL_LM:
        next_tokens = batches.of_next_tokens(config, made.vocab_size)
        return Workload(model, next_tokens, batches.next_token_loss, tokens, changed)
    if made.pad_token_id is None:
        made.pad_token_id = 0
    arguments = list(inspect.signature(model.forward).parameters)
    padded = batches.of_padded_text(config, made.vocab_size, made.pad_token_id, made.num_labels, arguments)
    return Workload(model, padded, batches.label_loss, tokens, changed)


def _shape(family: Family, options: HuggingFaceOptions, model: Any) -> tuple[int, ...]:
    """Of one image or spectrogram."""
    made = model.config
    if family.inputs == AUDIO:
        return made.num_mel_bins, 2 * made.max_source_positions
    side = options.image_size or getattr(made, "image_size", None) or _IMAGE_SIZE
    return made.num_channels, side, side


def _check_length(config: ExperimentConfig, model: nn.Module) -> None:
    """Raises ConfigError for a sequence that is longer than the model's positions."""
    made: Any = model.config
    longest = getattr(made, "max_position_embeddings", None) or getattr(made, "n_positions", None)
    if made.model_type == "roberta" and longest:
        longest -= made.pad_token_id + 1  # its positions begin after the padding's
    if longest and config.seq_len > longest:
        raise refuse("seq_len", config.seq_len, f"at most {longest}, the positions of {made.model_type}")

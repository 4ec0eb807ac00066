"""Chooses the parameters of a workload's model that train: all, adapters, biases, head, or a pattern."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import refuse
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.trainable import ALL, BIAS, HEAD, LORA, LORA_TARGETS, MODES, endings


def choose_trainable(model: nn.Module, config: ExperimentConfig) -> list[str]:
    """Set `requires_grad` of every parameter; return the changes. Raises ConfigError if none trains."""
    if config.train == ALL:
        return []
    if config.train == LORA:
        before = set(model.parameters())
        said = _add_adapters(model, config)
        chosen = set(model.parameters()) - before
    else:
        chosen = _chosen(model, config.train)
        said = f"train={config.train}"
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in chosen)
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return [f"{said}: {trainable:,} of {total:,} parameters train, the others are frozen"]


def _chosen(model: nn.Module, train: str) -> set[nn.Parameter]:
    if train == HEAD:
        return set(_head(model).parameters())
    named = list(model.named_parameters(remove_duplicate=False))
    if train == BIAS:
        chosen = {p for name, p in named if BIAS in name.rpartition(".")[2]}
    else:
        chosen = {p for name, p in named if fnmatchcase(name, train)}
    if not chosen:
        names = listed([name for name, _ in model.named_parameters()])
        pattern = f"a pattern that matches the name of a parameter; the model has {names}"
        raise refuse("train", train, f"{', '.join(MODES)} or {pattern}")
    return chosen


def _head(model: nn.Module) -> nn.Module:
    """Return the model's output embeddings, or else its last module that owns parameters."""
    get_output_embeddings: Any = getattr(model, "get_output_embeddings", None)
    head = get_output_embeddings() if callable(get_output_embeddings) else None
    if isinstance(head, nn.Module):
        return head
    owners = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not owners:
        raise refuse("train", HEAD, "all: the model has no parameters")
    return owners[-1]


def fill_adapters(model: nn.Module) -> None:
    """Fill zero LoRA B matrices with small random numbers, without which A gets no gradient."""
    for name, parameter in model.named_parameters():
        if ".lora_B." in name and parameter.requires_grad and not parameter.any():
            nn.init.normal_(parameter, std=0.02)


def _add_adapters(model: nn.Module, config: ExperimentConfig) -> str:
    """Add LoRA adapters (Hu et al. 2022) without dropout, scaled by 1. Returns the change as a sentence."""
    with unset_fake_temporarily():  # its modules may make tensors as they are imported
        import peft
        from peft.tuners.lora import LoraLayer

    targets: str | list[str] | None = endings(config.lora_targets)
    if config.lora_targets == LORA_TARGETS:
        targets = _automatic_targets(model)
    else:
        for ending in endings(config.lora_targets):
            if not any(f".{name}".endswith(f".{ending}") for name, _ in model.named_modules()):
                raise refuse("lora_targets", ending, "auto, or endings of the names of the model's modules")
    how = peft.LoraConfig(r=config.lora_rank, lora_alpha=config.lora_rank, target_modules=targets)
    try:
        peft.inject_adapter_in_model(how, model)
    except ValueError as error:
        raise refuse("lora_targets", config.lora_targets, f"modules that peft can adapt: {error}") from error
    adapted = [name for name, module in model.named_modules() if isinstance(module, LoraLayer)]
    return f"LoRA adapters of rank {config.lora_rank} in {listed(adapted)}"


def _automatic_targets(model: nn.Module) -> str | list[str]:
    """Return peft's targets for a known model, else a pattern for all linear layers but the last."""
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    known: Collection[str] | None = KNOWN.get(getattr(getattr(model, "config", None), "model_type", ""))
    if known:
        return list(known)
    # No subclasses: they may bypass the linear layer's forward, where the adapter is.
    linear = [name for name, module in model.named_modules() if type(module) is nn.Linear][:-1]
    if not linear:
        raise refuse("lora_targets", LORA_TARGETS, "names of modules: no nn.Linear precedes the last one")
    return "|".join(map(re.escape, linear))

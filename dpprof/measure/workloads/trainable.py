"""Chooses the parameters of a workload's model that train: all, adapters, biases, head, or a pattern."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import refuse
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.precision import BF16, FP32
from dpprof.vocabulary.trainable import ALL, BIAS, HEAD, LORA, LORA_TARGETS, MODES, choices, items


def choose_trainable(model: nn.Module, config: ExperimentConfig) -> list[str]:
    """Set `requires_grad` of every parameter; return the changes. Raises ConfigError if none trains."""
    if config.train == ALL:
        return []
    freeze_others(model, config.train)
    said = _add_adapters(model, config) if config.train == LORA else f"train={config.train}"
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if trainable == total:
        return [f"{said}: all {total:,} parameters train, as with train=all"]
    return [f"{said}: {trainable:,} of {total:,} parameters train, the others are frozen"]


def freeze_others(model: nn.Module, train: str) -> None:
    """Freeze what does not train: everything, if adapters follow. Raises ConfigError if nothing trains."""
    if train == ALL:
        return
    chosen = set() if train == LORA else _chosen(model, train)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in chosen)


def _chosen(model: nn.Module, train: str) -> set[nn.Parameter]:
    """Return the parameters that a list names, without those it excludes. Raises ConfigError for none."""
    wanted, unwanted = choices(train)
    chosen, excluded = (
        {parameter for item in each for parameter in _named(model, item)} for each in (wanted, unwanted)
    )
    if not chosen - excluded:
        raise refuse("train", train, f"something that trains: it excludes all of {listed(wanted)}")
    return chosen - excluded


def _named(model: nn.Module, item: str) -> set[nn.Parameter]:
    """Return the parameters of a mode or a pattern. Raises ConfigError if there are none."""
    named = list(model.named_parameters(remove_duplicate=False))
    if item == HEAD:
        return set(_head(model).parameters())
    if item == BIAS:
        found = {p for name, p in named if BIAS in name.rpartition(".")[2]}
    else:
        found = {p for name, p in named if item == ALL or fnmatchcase(name, item)}
    if not found:
        names = listed([name for name, _ in model.named_parameters()])
        pattern = f"patterns that each match the name of a parameter; the model has {names}"
        raise refuse("train", item, f"{', '.join(MODES)} or {pattern}")
    return found


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
        from peft.tuners.tuners_utils import cast_adapter_dtype

    targets: str | list[str] | None = items(config.lora_targets)
    if config.lora_targets == LORA_TARGETS:
        targets = _automatic_targets(model)
    else:
        for ending in items(config.lora_targets):
            if not any(f".{name}".endswith(f".{ending}") for name, _ in model.named_modules()):
                raise refuse("lora_targets", ending, "auto, or endings of the names of the model's modules")
    how = peft.LoraConfig(r=config.lora_rank, lora_alpha=config.lora_rank, target_modules=targets)
    try:
        peft.inject_adapter_in_model(how, model)
    except ValueError as error:
        raise refuse("lora_targets", config.lora_targets, f"modules that peft can adapt: {error}") from error
    adapted = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    if config.adapter_dtype == FP32:
        cast_adapter_dtype(model, "default")
    elif wide := [name for name, layer in adapted.items() if layer.weight.dtype != torch.bfloat16]:
        of_layers = f"{FP32}, unless all adapted layers are in {BF16}, which {listed(wide)} are not"
        raise refuse("adapter_dtype", config.adapter_dtype, of_layers)
    return f"{config.adapter_dtype} LoRA adapters of rank {config.lora_rank} in {listed(list(adapted))}"


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

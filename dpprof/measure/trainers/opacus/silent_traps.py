"""Traps that a model trains in without an error: told beside its figures, a sentence for each module."""

from collections.abc import Iterator

from opacus.grad_sample import GradSampleModule
from opacus.layers.dp_rnn import DPGRU, DPLSTM, DPRNN
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpprof.measure.trainers.opacus.trap_sentences import WARNINGS
from dpprof.measure.trainers.opacus.traps import TUPLES
from dpprof.measure.trainers.parallel import kind_of
from dpprof.vocabulary.formats import listed

# Opacus looks into the children of these alone. nn.MultiheadAttention fails, which is told in its own words.
_LOOKED_INTO = {*GradSampleModule.GRAD_SAMPLERS, DPRNN, DPLSTM, DPGRU, nn.MultiheadAttention}


def silent_traps(model: nn.Module) -> list[str]:
    """The sentences for a model that a trainer of Opacus trains."""
    rules = (_raw_parameters, _without_sampler, _zero_gradients, mixed_samples)
    return [sentence for rule in rules for sentence in rule(model)]


def _raw_parameters(module: nn.Module, path: str = "") -> Iterator[str]:
    """Modules with parameters of their own and with children that have some, the outermost of them."""
    own = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
    if own and kind_of(module) not in _LOOKED_INTO:
        if any(True for child in module.children() for _ in child.parameters()):
            yield WARNINGS["raw"].format(module=path or "the model", parameters=listed(own))
        return
    for name, child in module.named_children():
        yield from _raw_parameters(child, f"{path}.{name}" if path else name)


def _without_sampler(model: nn.Module) -> Iterator[str]:
    """Modules of parameters alone that Opacus has no grad sampler for, by their type."""
    paths: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        is_leaf = not any(True for child in module.children() for _ in child.parameters())
        own = any(p.requires_grad for p in module.parameters(recurse=False))
        if own and is_leaf and kind_of(module) not in _LOOKED_INTO and not isinstance(module, TUPLES):
            paths.setdefault(kind_of(module).__name__, []).append(name or "the model")
    for kind, names in paths.items():
        yield WARNINGS["functorch"].format(modules=listed(names), kind=kind)


def _zero_gradients(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, nn.EmbeddingBag) and module.mode == "max" and module.weight.requires_grad:
            yield WARNINGS["bag_max"].format(module=name or "the model")


def mixed_samples(model: nn.Module) -> Iterator[str]:
    """Batch norms without trainable parameters, which Opacus lets pass."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters()):
            yield WARNINGS["mixing"].format(module=name or "the model", kind=kind_of(module).__name__)

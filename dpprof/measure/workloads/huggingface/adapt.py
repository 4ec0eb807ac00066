"""Changes a model of transformers so that every trainer can train it, and says what it changed.

The function that the model computes stays the same, but for BatchNorm, which no per-sample gradient allows.
All trainers get the same model, but for tied weights, which Opacus's Ghost Clipping alone cannot train.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpprof.errors import ConfigError

# Classes of transformers that compute what `nn.RMSNorm` does.
_RMS_NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm", "MixtralRMSNorm")
_ADDING_IN_PLACE = ("ResNetBasicLayer", "ResNetBottleNeckLayer")
_OF_SHARED_IDS = ("wpe", "position_embeddings", "token_type_embeddings")
_NOT_TIED = "DPGhostClippingTrainer"
_GROUPS = 32


def adapt(
    model: nn.Module, trainer: str, *, is_allowed: bool, ties_are_frozen: bool = False
) -> tuple[str, ...]:
    """Change the model in place; gives a sentence for each kind of change. Tied weights that are frozen stay.

    Raises ConfigError with these if changes are not allowed and any is needed.
    """
    changed = [*_exchanged(model), *_adding_out_of_place(model), *_ids_of_each_sample(model)]
    if trainer == _NOT_TIED and not ties_are_frozen:
        changed += _untied(model)
    if changed and not is_allowed:
        raise ConfigError(f"adapt: got false, and the model needs changes: {' '.join(changed)}")
    return tuple(changed)


def _exchanged(model: nn.Module) -> Iterator[str]:
    """Modules in whose place others are put."""
    counts: Counter[str] = Counter()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            for is_of_kind, other, told in _EXCHANGES:
                if is_of_kind(child):
                    setattr(module, name, other(child))
                    counts[told.format(type(child).__name__)] += 1
    for told, count in counts.items():
        yield f"{count} x {told}."


def _is_conv1d(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _linear(conv: Any) -> nn.Linear:
    columns, rows = conv.weight.shape
    linear = nn.Linear(columns, rows, device="meta")
    linear.weight = nn.Parameter(conv.weight.detach().T.contiguous())
    linear.bias = conv.bias
    return linear


def _is_rms_norm(module: nn.Module) -> bool:
    return type(module).__name__ in _RMS_NORMS and type(module).__module__.startswith("transformers.")


def _rms_norm(norm: Any) -> nn.RMSNorm:
    exchanged = nn.RMSNorm(norm.weight.shape, eps=norm.variance_epsilon, device="meta")
    exchanged.weight = norm.weight
    return exchanged


def _is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm)


def _group_norm(norm: Any) -> nn.GroupNorm:
    """In as many groups as Wu and He 2018 recommend, or as divide the channels."""
    groups = next(n for n in range(min(_GROUPS, norm.num_features), 0, -1) if norm.num_features % n == 0)
    exchanged = nn.GroupNorm(groups, norm.num_features, eps=norm.eps, device="meta")
    exchanged.weight, exchanged.bias = norm.weight, norm.bias
    return exchanged


_Exchange = tuple[Callable[[nn.Module], bool], Callable[[Any], nn.Module], str]
_EXCHANGES: tuple[_Exchange, ...] = (
    (_is_conv1d, _linear, "{}, for which Opacus has no rule, is nn.Linear with the weight transposed"),
    (_is_rms_norm, _rms_norm, "{} is nn.RMSNorm, which computes the same"),
    (_is_batch_norm, _group_norm, "{}, which mixes samples, is nn.GroupNorm: another function"),
)


def _adding_out_of_place(model: nn.Module) -> Iterator[str]:
    """Residual sums: Opacus's hooks refuse one that changes a module's output."""
    layers = [module for module in model.modules() if type(module).__name__ in _ADDING_IN_PLACE]
    counts = Counter(type(layer).__name__ for layer in layers)
    for layer in layers:
        layer.__class__ = _out_of_place(type(layer))
    for name, count in counts.items():
        yield f"{count} x {name} adds its residual out of place."


def _out_of_place(cls: type[nn.Module]) -> type[nn.Module]:
    def forward(self: Any, hidden_state: Tensor) -> Tensor:
        out: Tensor = self.activation(self.layer(hidden_state) + self.shortcut(hidden_state))
        return out

    return type(cls.__name__, (cls,), {"forward": forward})


class _BatchSize:
    """The samples of the batch that a model is called with; None where it is not being called, as when Opacus
    calls a copy of a module with one sample.
    """

    value: int | None = None


def _ids_of_each_sample(model: nn.Module) -> Iterator[str]:
    """Learned positions and token types, whose ids transformers makes once for all samples."""
    embeddings = [
        module
        for name, module in model.named_modules()
        if name.endswith(_OF_SHARED_IDS)
        and isinstance(module, nn.Embedding)
        and module.padding_idx is None
        and module.weight.requires_grad
    ]
    if not embeddings:
        return
    size = _BatchSize()

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        size.value = next(t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)).shape[0]

    def forget(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        size.value = None

    def expand(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return args if size.value is None else (args[0].expand(size.value, -1).contiguous(),)

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.register_forward_hook(forget, always_call=True)
    for module in embeddings:
        module.register_forward_pre_hook(expand)
    yield "Ids of positions and token types are those of each sample: (B, T), contiguous."


def _untied(model: Any) -> Iterator[str]:
    """The head's own copy of a weight that it shares with the embedding."""
    head = model.get_output_embeddings()
    if head is None or head.weight is not model.get_input_embeddings().weight:
        return
    head.weight = nn.Parameter(head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    yield (
        "For ghost alone, the head has a weight of its own and not the embedding's, since Opacus's Ghost "
        f"Clipping takes no tied weights: {head.weight.numel():,} parameters more."
    )

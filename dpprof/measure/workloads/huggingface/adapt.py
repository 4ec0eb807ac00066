"""Changes a transformers model so that every trainer can train it, and reports the changes.

The function that the model computes stays the same, except for BatchNorm, which mixes samples. All trainers
get the same model, except for tied weights, which Opacus's Ghost Clipping alone cannot train.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpprof.errors import ConfigError
from dpprof.vocabulary.trainers import TRAINER_NAMES

# Classes of transformers that compute the same as `nn.RMSNorm`.
_RMS_NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm", "MixtralRMSNorm")
_OF_SHARED_IDS = ("wpe", "position_embeddings", "token_type_embeddings")
_NOT_TIED = "DPGhostClippingTrainer"
_GROUPS = 32


def adapt(model: Any, trainer: str, *, is_allowed: bool = True) -> tuple[str, ...]:
    """Change the model in place for a trainer such as `ghost`. Returns a sentence for each kind of change.

    Frozen weights and earlier changes stay as they are. The state dict keeps transformers' names and shapes.
    Raises ConfigError if changes are needed but not allowed.
    """
    model.config.use_cache = False  # of keys and values, which training does not need
    changed = [*_exchanged(model), *_ids_of_each_sample(model)]
    if TRAINER_NAMES.get(trainer, trainer) == _NOT_TIED:
        changed += _untied(model)
    if changed and not is_allowed:
        raise ConfigError(f"adapt: got false, and the model needs changes: {' '.join(changed)}")
    return tuple(changed)


def _exchanged(model: nn.Module) -> Iterator[str]:
    """Exchange modules that cannot train as they are; yield a sentence for each kind."""
    counts: Counter[str] = Counter()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            for is_of_kind, other, told in _EXCHANGES:
                if is_of_kind(child):
                    counts[told.format(type(child).__name__)] += 1
                    setattr(module, name, other(child))
    for told, count in counts.items():
        yield f"{count} x {told}."


def _is_of_transformers(*names: str) -> Callable[[nn.Module], bool]:
    """Return a test for these transformers classes that excludes modules with a frozen weight."""

    def is_of_kind(module: nn.Module) -> bool:
        kind, weight = type(module), getattr(module, "weight", None)
        trains = weight is None or weight.requires_grad
        return kind.__name__ in names and kind.__module__.startswith("transformers.") and trains

    return is_of_kind


def _linear(conv: Any) -> nn.Linear:
    columns, rows = conv.weight.shape
    linear = nn.Linear(columns, rows, device="meta")
    linear.weight = nn.Parameter(conv.weight.detach().T.contiguous())
    linear.bias = conv.bias
    linear.register_state_dict_post_hook(_transposed)
    linear.register_load_state_dict_pre_hook(_transposed)
    return linear


def _transposed(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Save and load the weight as that of a Conv1D."""
    if (name := f"{prefix}weight") in state:
        state[name] = state[name].T


def _rms_norm(norm: Any) -> nn.RMSNorm:
    exchanged = nn.RMSNorm(norm.weight.shape, eps=norm.variance_epsilon, device="meta")
    exchanged.weight = norm.weight
    return exchanged


def _group_norm(norm: Any) -> nn.GroupNorm:
    """Use 32 groups (Wu and He 2018), or the most below that divide the channels."""
    groups = next(n for n in range(min(_GROUPS, norm.num_features), 0, -1) if norm.num_features % n == 0)
    exchanged = nn.GroupNorm(groups, norm.num_features, eps=norm.eps, device="meta")
    exchanged.weight, exchanged.bias = norm.weight, norm.bias
    return exchanged


def _with_forward(forward: Callable[..., Tensor]) -> Callable[[nn.Module], nn.Module]:
    def changed(module: nn.Module) -> nn.Module:
        module.__class__ = type(type(module).__name__, (type(module),), {"forward": forward})
        return module

    return changed


def _adding_out_of_place(self: Any, hidden_state: Tensor) -> Tensor:
    """Run a residual layer of ResNet: Opacus's hooks refuse in-place sums on a module's output."""
    return self.activation(self.layer(hidden_state) + self.shortcut(hidden_state))


def _opt_layer(layer: Any) -> nn.Module:
    """Put dropout into a module, which the gradient check can switch off."""
    layer.dropout = nn.Dropout(layer.dropout).train(layer.training)
    return _with_forward(_of_three_dimensions)(layer)


def _of_three_dimensions(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    use_cache: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Run a layer of OPT, (B, T, D) throughout: transformers' feed-forward part takes (B x T, D)."""

    def attend(x: Tensor) -> Any:
        return self.self_attn(hidden_states=x, attention_mask=attention_mask, **kwargs)[0]

    def feed_forward(x: Tensor) -> Any:
        return self.fc2(self.activation_fn(self.fc1(x)))

    for norm, part in ((self.self_attn_layer_norm, attend), (self.final_layer_norm, feed_forward)):
        if self.do_layer_norm_before:
            hidden_states = hidden_states + self.dropout(part(norm(hidden_states)))
        else:
            hidden_states = norm(hidden_states + self.dropout(part(hidden_states)))
    return hidden_states


def _opt_positions(embedding: Any) -> Any:
    """Turn the embedding into an `nn.Embedding`, called with the rows of its weight alone."""

    def rows(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ids = kwargs.get("position_ids")  # none where Opacus calls a copy with what it saw
        return None if ids is None else ((ids + embedding.offset,), {})

    embedding.__class__ = nn.Embedding
    embedding.register_forward_pre_hook(rows, with_kwargs=True)
    return embedding


_Exchange = tuple[Callable[[nn.Module], bool], Callable[[Any], nn.Module], str]
_EXCHANGES: tuple[_Exchange, ...] = (
    (
        _is_of_transformers("Conv1D"),
        _linear,
        "{}, for which Opacus has no rule, is nn.Linear with the weight transposed",
    ),
    (_is_of_transformers(*_RMS_NORMS), _rms_norm, "{} is nn.RMSNorm, which computes the same"),
    (
        lambda module: isinstance(module, _BatchNorm),
        _group_norm,
        "{}, which mixes samples, is nn.GroupNorm: another function",
    ),
    (
        _is_of_transformers("ResNetBasicLayer", "ResNetBottleNeckLayer"),
        _with_forward(_adding_out_of_place),
        "{} adds its residual out of place",
    ),
    (
        _is_of_transformers("OPTDecoderLayer"),
        _opt_layer,
        "{} keeps the samples in the first dimension throughout, which computes the same",
    ),
    (
        _is_of_transformers("OPTLearnedPositionalEmbedding"),
        _opt_positions,
        "{} is nn.Embedding with the positions as its one input, which computes the same",
    ),
)


def _ids_of_each_sample(model: Any) -> Iterator[str]:
    """Expand ids of positions and token types, which transformers makes once for all samples."""
    embeddings = [
        module
        for name, module in model.named_modules()
        if name.endswith(_OF_SHARED_IDS)
        and isinstance(module, nn.Embedding)
        and module.padding_idx is None
        and module.weight.requires_grad
    ]
    if not embeddings or hasattr(model, "batch_size_of_ids"):
        return
    # That of the model's current call; None outside, as when Opacus calls a copy of a module.
    size = model.batch_size_of_ids = SimpleNamespace(value=None)

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
    """Give the head its own copy of a weight shared with the embedding."""
    head = model.get_output_embeddings()
    is_tied = head is not None and head.weight is model.get_input_embeddings().weight
    if not (is_tied and head.weight.requires_grad):
        return
    head.weight = nn.Parameter(head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    yield (
        "For ghost alone, the head has a weight of its own and not the embedding's, since Opacus's Ghost "
        f"Clipping takes no tied weights: {head.weight.numel():,} parameters more."
    )

"""Workloads whose models hit the limits of Opacus, one each, and the same with the remedy, for the tests.

Most are `Model`s whose trap lies in `body`. Suffixes of shapes: B samples, T tokens, D features.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from example_workloads import per_sample_cross_entropy
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.config.experiment import ExperimentConfig

TOKENS, WIDTH, CLASSES = 11, 8, 5
Factory = Callable[[ExperimentConfig], tuple[Any, ...]]


class Body(nn.Module):
    """Runs `call(layers, x)` over its layers: (B, T, D) -> (B, ..., D)."""

    def __init__(self, call: Callable[[Any, Tensor], Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._call = call

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self._call(self.layers, x_BTD)


class Model(nn.Module):
    """Token ids (B, T) -> logits (B, classes), by way of the body."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.body = body
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids_BT: Tensor) -> Any:
        return self.head(self.body(self.tokens(ids_BT)).flatten(1, -2).mean(dim=1))


def workload(model: nn.Module, config: ExperimentConfig) -> tuple[Any, ...]:
    """The model on random tokens, with a class for each sample."""
    shape = (config.batch_size, config.seq_len)
    batches = iter(lambda: (torch.randint(TOKENS, shape), torch.randint(CLASSES, shape[:1])), None)
    return model, batches, per_sample_cross_entropy


def with_body(body: Callable[[], nn.Module]) -> Factory:
    return lambda config: workload(Model(body()), config)


def calling(call: Callable[[Any, Tensor], Tensor], *layers: Callable[[], nn.Module]) -> Factory:
    """A factory whose model's body calls fresh layers so."""
    return with_body(lambda: Body(call, *(layer() for layer in layers)))


def linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def embedding() -> nn.Module:
    return nn.Embedding(64, WIDTH)


def places(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1])


def first(layers: Any, x: Tensor) -> Any:
    return layers[0](x)


def first_output(layers: Any, x: Tensor) -> Any:
    return layers[0](x)[0]


def attending(layers: Any, x: Tensor) -> Any:
    return layers[0](x, x, x)[0]


def adding_in_place(layers: Any, x: Tensor) -> Any:
    y: Tensor = layers[0](x)
    y += x
    return layers[1](y)


def over_features(layers: Any, x: Tensor) -> Any:
    return layers[0](x.mT).mT


def over_images(layers: Any, x: Tensor) -> Any:
    """A convolution whose channels are the tokens."""
    images = x.unflatten(2, (2, -1)).contiguous(memory_format=torch.channels_last)
    return layers[0](images).flatten(2)


images_with_channels_last = calling(over_images, lambda: nn.Conv2d(4, 4, 3, padding=1))
# Inputs of an embedding or a linear layer
positions_t = calling(lambda layers, x: x + layers[0](places(x)), embedding)
positions_1t = calling(lambda layers, x: x + layers[0](places(x)[None]), embedding)
positions_expanded = calling(lambda layers, x: x + layers[0](places(x).expand(x.shape[:2])), embedding)
sliced = calling(lambda layers, x: x + layers[0](x.argmax(-1).repeat(1, 2)[:, : x.shape[1]]), embedding)
positions = calling(lambda layers, x: x + layers[0](places(x).expand(x.shape[:2]).contiguous()), embedding)
flattened = calling(lambda layers, x: layers[0](x.flatten(0, 1)).view_as(x), linear)
four_dimensions = calling(lambda layers, x: layers[0](x.unflatten(1, (2, -1))), linear)
three_dimensions = calling(first, linear)
keyword = calling(lambda layers, x: layers[0](input=x), linear)

# Parameters that the loss does not reach by a call of their module
unused = calling(first, linear, linear)
detached = calling(lambda layers, x: x + layers[0](x).detach(), linear)
by_function = calling(lambda layers, x: F.linear(x, layers[0].weight, layers[0].bias), linear)
half_used = calling(lambda layers, x: (layers[0](x), layers[0](2 * x))[0], linear)
frozen = calling(first, linear, lambda: linear().requires_grad_(False))

# In place
residual = calling(adding_in_place, linear, linear)
residual_added = calling(lambda layers, x: layers[1](layers[0](x) + x), linear, linear)
relu_method = calling(lambda layers, x: layers[1](layers[0](x).relu_()), linear, linear)
relu_function = calling(lambda layers, x: layers[1](F.relu(layers[0](x), inplace=True)), linear, linear)
relu_module = with_body(lambda: nn.Sequential(linear(), nn.ReLU(inplace=True), linear()))
relu = with_body(lambda: nn.Sequential(linear(), nn.ReLU(), linear()))


def loss_in_place(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, _ = three_dimensions(config)
    return model, batches, lambda outputs, targets: per_sample_cross_entropy(outputs.mul_(2), targets)


# Layers that Opacus does not take
norm_without_bias = with_body(lambda: nn.LayerNorm(WIDTH, bias=False))
rms_norm = with_body(lambda: nn.RMSNorm(WIDTH))
batch_norm = calling(over_features, lambda: nn.BatchNorm1d(WIDTH))
batch_norm_untrained = calling(over_features, lambda: nn.BatchNorm1d(WIDTH, affine=False))
group_norm = calling(over_features, lambda: nn.GroupNorm(2, WIDTH))
instance_norm = calling(
    over_features, lambda: nn.InstanceNorm1d(WIDTH, affine=True, track_running_stats=True)
)
instance_norm_untracked = calling(over_features, lambda: nn.InstanceNorm1d(WIDTH, affine=True))
lstm = calling(first_output, lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True))
gru = calling(first_output, lambda: nn.GRU(WIDTH, WIDTH, batch_first=True))
rnn = calling(first_output, lambda: nn.RNN(WIDTH, WIDTH, batch_first=True))
lstm_state = calling(
    lambda layers, x: layers[0](x)[1][0].transpose(0, 1), lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True)
)
dp_lstm = calling(first_output, lambda: DPLSTM(WIDTH, WIDTH, batch_first=True))
dp_gru = calling(first_output, lambda: DPGRU(WIDTH, WIDTH, batch_first=True))
dp_rnn = calling(first_output, lambda: DPRNN(WIDTH, WIDTH, batch_first=True))
attention = calling(attending, lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True))
encoder = with_body(lambda: nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True))
dp_attention = calling(attending, lambda: DPMultiheadAttention(WIDTH, 2, batch_first=True))


class Bag(nn.Module):
    """Token ids (B, T) -> logits (B, classes) by an embedding bag."""

    def __init__(self, mode: str, *, with_offsets: bool) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, WIDTH, mode=mode)
        self.with_offsets = with_offsets
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids_BT: Tensor) -> Any:
        offsets = torch.arange(0, ids_BT.numel(), ids_BT.shape[1])
        bags = self.bag(ids_BT.flatten(), offsets) if self.with_offsets else self.bag(ids_BT)
        return self.head(bags)


def bag(config: ExperimentConfig) -> tuple[Any, ...]:
    return workload(Bag("mean", with_offsets=False), config)


def bag_with_offsets(config: ExperimentConfig) -> tuple[Any, ...]:
    return workload(Bag("mean", with_offsets=True), config)


def bag_max(config: ExperimentConfig) -> tuple[Any, ...]:
    return workload(Bag("max", with_offsets=True), config)


# Parameters in more than one place
reused = calling(lambda layers, x: layers[0](layers[0](x)), linear)


def tied(config: ExperimentConfig) -> tuple[Any, ...]:
    model = Model(nn.Linear(WIDTH, WIDTH))
    model.head = nn.Linear(WIDTH, TOKENS, bias=False)
    model.head.weight = model.tokens.weight
    return workload(model, config)


# Parameters and buffers of a module with children
class Scaled(nn.Module):
    """A linear layer, scaled by a parameter, and shifted by a buffer if asked for."""

    shift: Tensor | None

    def __init__(self, *, with_buffer: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("shift", torch.ones(1) if with_buffer else None)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.linear(x)
        return out if self.shift is None else out + self.shift


class Vision(nn.Module):
    """Patches (B, T, 3) -> logits (B, classes), with a raw class token and positions on the root."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, 64, WIDTH))
        self.patches = nn.Linear(3, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Any:
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patches(x)], dim=1)
        return self.head((x + self.pos_embed[:, : x.shape[1]]).relu().mean(dim=1))


class VisionOfTwo(Vision):
    """The same of patches and a scale (B, 1)."""

    def forward(self, x: Tensor, scale: Tensor) -> Any:  # type: ignore[override]
        return scale * super().forward(x)


def vision(config: ExperimentConfig) -> tuple[Any, ...]:
    shape = (config.batch_size, config.seq_len, 3)
    batches = iter(lambda: (torch.randn(shape), torch.randint(CLASSES, shape[:1])), None)
    return Vision(), batches, per_sample_cross_entropy


def vision_of_two(config: ExperimentConfig) -> tuple[Any, ...]:
    _, batches, loss = vision(config)
    return VisionOfTwo(), (((x, x[:, 0, :1]), y) for x, y in batches), loss


scaled = with_body(Scaled)
scaled_with_buffer = with_body(lambda: Scaled(with_buffer=True))

# Takes batches of any size but 0.
viewed = calling(lambda layers, x_BTD: layers[0](x_BTD.view(x_BTD.shape[0], -1, WIDTH)), linear)


# Random numbers, and modules that are called again in backward
class Scaling(nn.Module):
    """(B, T, D), scaled by a parameter of its own after dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        return self.scale * self.dropout(x)


dropout = with_body(lambda: nn.Sequential(linear(), nn.Dropout(0.5), linear()))
dropout_by_function = calling(lambda layers, x: layers[1](F.dropout(layers[0](x))), linear, linear)
dropout_under_functorch = with_body(Scaling)


def twice(use_reentrant: bool) -> Factory:
    """Two layers whose activations are computed again in backward."""
    return calling(
        lambda layers, x: checkpoint(layers[0], x, use_reentrant=use_reentrant),
        lambda: nn.Sequential(linear(), nn.ReLU(), linear()),
    )


checkpointed, checkpointed_reentrant = twice(False), twice(True)


# Layers that Opacus has no grad sampler for
class Transposed(nn.Module):
    """A linear layer as GPT-2's code has it: its weight is (in, out)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)

    def forward(self, x: Tensor) -> Any:
        return x @ self.weight


no_sampler = calling(lambda layers, x: layers[1](layers[0](x)), Transposed, Transposed)

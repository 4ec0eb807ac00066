"""The decoder of a course on language models, and its AdamW, as `decoders.json` has measured them.

RMSNorm, SwiGLU and rotary embeddings are each written out in elementwise operators, attention is eager, and
layers multiply by `einsum`: what `cs336_basics` of github.com/yyin-dev/cs336-a2 (bc6cc1b) computes, without
einops.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.standard import StandardTrainer
from dpprof.vocabulary.trainer_info import OF_ANY_TRAINING, TrainerInfo

VOCABULARY = 10_000


class _Linear(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, into) / math.sqrt(into))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * scaled


class _Rotary(nn.Module):
    """Rotates pairs of neighbouring numbers by angles that grow with the position."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(length), 10_000.0 ** -(torch.arange(0, width, 2) / width))
        self.turns: Tensor
        self.register_buffer("turns", torch.stack((angles.cos(), angles.sin())), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.turns[:, positions]
        turned = cosine * first - sine * second, sine * first + cosine * second
        return torch.stack(turned, dim=-1).flatten(-2).contiguous()


def _softmax(x: Tensor) -> Tensor:
    exponents = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
    return exponents / exponents.sum(dim=-1, keepdim=True)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, rotary: _Rotary) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.queries, self.keys, self.values, self.out = (_Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self._inputs())
        positions = torch.arange(x.shape[1], device=x.device).view(1, 1, -1)
        q, k = self.rotary(q, positions), self.rotary(k, positions)
        order = torch.arange(x.shape[1], device=x.device)
        is_before = order.view(1, 1, -1, 1) >= order.view(1, 1, 1, -1)
        scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
        weights = _softmax(torch.where(is_before, scores, float("-inf")))
        attended = torch.einsum("...qk,...kd->...qd", weights, v)
        result: Tensor = self.out(attended.transpose(1, 2).flatten(-2).contiguous())
        return result

    def _inputs(self) -> tuple[nn.Module, ...]:
        return self.queries, self.keys, self.values


class _SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first, self.gate, self.last = (
            _Linear(width, hidden),
            _Linear(width, hidden),
            _Linear(hidden, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        result: Tensor = self.last(first * torch.sigmoid(first) * self.gate(x))
        return result


class _Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, rotary: _Rotary) -> None:
        super().__init__()
        self.attention, self.feed_forward = _Attention(width, heads, rotary), _SwiGLU(width, hidden)
        self.before_attention, self.before_feed_forward = _Norm(width), _Norm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        result: Tensor = x + self.feed_forward(self.before_feed_forward(x))
        return result


class _Embedding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, width))

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids, :]


def decoder(config: ExperimentConfig) -> tuple[nn.Module, Iterator[tuple[Tensor, Tensor]], Any]:
    """Return a decoder of `width`, `hidden`, `layers` and `heads`, with random tokens.

    With `loss=none` the step ends at the logits: one of each sample is its loss, which takes no memory.
    """
    width, hidden, layers, heads = (
        int(config.named_options[name]) for name in ("width", "hidden", "layers", "heads")
    )
    rotary = _Rotary(config.seq_len, width // heads)
    blocks = (_Block(width, hidden, heads, rotary) for _ in range(layers))
    model = nn.Sequential(_Embedding(width), *blocks, _Norm(width), _Linear(width, VOCABULARY))
    size, device = (config.batch_size, config.seq_len), config.device
    tokens = (torch.randint(VOCABULARY, (2, *size), device=device) for _ in itertools.count())

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        shifted = logits - logits.max(dim=-1, keepdim=True)[0]
        logarithms = shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True))
        return torch.gather(-logarithms, -1, targets.unsqueeze(-1)).mean(dim=(1, 2))

    def first_logit(logits: Tensor, targets: Tensor) -> Tensor:
        return logits[:, 0, 0]

    has_loss = config.named_options.get("loss") != "none"
    return model, ((inputs, targets) for inputs, targets in tokens), loss if has_loss else first_logit


class _AdamW(torch.optim.Optimizer):
    """AdamW in elementwise operators, each with a tensor of its own as its result."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, gradient = self.state[p], p.grad.data
                number = state.get("t", 1)
                mean = state.get("m", torch.zeros_like(gradient))
                square = state.get("v", torch.zeros_like(gradient))
                mean = 0.9 * mean + 0.1 * gradient
                square = 0.999 * square + 0.001 * torch.square(gradient)
                rate = group["lr"] * math.sqrt(1 - 0.999**number) / (1 - 0.9**number)
                p.data -= rate * mean / (torch.sqrt(square) + 1e-8)
                p.data -= group["lr"] * 0.01 * p.data
                state["m"], state["v"], state["t"] = mean, square, number + 1


class CourseTrainer(StandardTrainer):
    """Standard training with the course's AdamW."""

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Replace the optimizer."""
        return _AdamW(self.parameters, {"lr": 1e-3})


COURSE = TrainerInfo(
    "CourseTrainer",
    "course",
    is_private=False,
    color="#3969ac",
    phases=("zero_grad", "forward", "backward", "optimizer_step"),
    categories=OF_ANY_TRAINING,
    target="decoder:CourseTrainer",
    is_default=False,
)

"""Steps of published measurements as workloads: what their own code computed, in words of today's torch.

Each factory takes the `ExperimentConfig`, as `--workload workloads:fastdp_gpt2` asks of it with this folder
on `PYTHONPATH`.
"""

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.huggingface.adapt import adapt

Workload = tuple[nn.Module, Iterator[tuple[Tensor, Tensor]], Any]
GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20)}
_GPT2_VOCABULARY = 50_257


def fastdp_gpt2(config: ExperimentConfig) -> Workload:
    """GPT-2 as `examples/table2text` of awslabs/fast-differential-privacy trains it.

    Attention is eager, dropout 0.1, and the head has a weight of its own. The loss copies the logits but for
    the last position, and takes cross-entropy with the vocabulary in the second dimension. `name` chooses
    the size.
    """
    transformers: Any = importlib.import_module("transformers")
    width, layers, heads = GPT2[str(config.named_options["name"])]
    made = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, attn_implementation="eager")
    made.tie_word_embeddings, made.use_cache = False, False
    model: Any = transformers.GPT2LMHeadModel(made)
    adapt(model, config.trainer)

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        shifted = outputs.logits[..., :-1, :].contiguous()
        return F.cross_entropy(shifted.permute(0, 2, 1), labels[..., 1:], reduction="none").mean(dim=1)

    return model, _tokens(config, _GPT2_VOCABULARY), loss


def _tokens(config: ExperimentConfig, vocabulary: int) -> Iterator[tuple[Tensor, Tensor]]:
    size = (config.batch_size, config.seq_len)
    ids = (torch.randint(vocabulary, size, device=config.device) for _ in itertools.count())
    return ((each, each) for each in ids)


class _FlashLayer(nn.Module):
    """A layer of `SimpleBigModelWithFlashAttention`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.norm_attention, self.norm_feed_forward = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (B, T, width)."""
        normed = self.norm_attention(x)
        q, k, v = (
            layer(normed).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        )
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        x = x + self.out(attended.transpose(1, 2).contiguous().view(x.shape))
        return x + self.feed_forward(self.norm_feed_forward(x))  # type: ignore[no-any-return]


class _FlashModel(nn.Module):
    """`SimpleBigModelWithFlashAttention` of the fork JackyXiao98/opacus, `memory_test/test_algo`."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(_FlashLayer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids, shape (B, T); logits, shape (B, T, vocabulary)."""
        positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0).expand_as(ids)
        logits: Tensor = self.head(self.layers(self.tokens(ids) + self.positions(positions)))
        return logits


def flash_model(config: ExperimentConfig) -> Workload:
    """1,171.6M parameters at a sequence of 16,384."""
    model = _FlashModel(32_000, 2048, 20, 16, config.seq_len)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return losses.view(labels.shape).mean(dim=1)

    return model, _tokens(config, 32_000), loss

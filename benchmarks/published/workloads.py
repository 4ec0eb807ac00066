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

Workload = tuple[nn.Module, Iterator[tuple[Any, Tensor]], Any]
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


def bert_classifier(config: ExperimentConfig) -> Workload:
    """BERT-base as `examples/benchmark.py` of opacus-fusion trains it: bert-base-cased with three labels.

    Attention is eager, dropout 0; embeddings of positions and token types are frozen.
    """
    transformers: Any = importlib.import_module("transformers")
    model: Any = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=28_996,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )
    for frozen in (model.bert.embeddings.position_embeddings, model.bert.embeddings.token_type_embeddings):
        frozen.requires_grad_(False)

    def batches() -> Iterator[tuple[Any, Tensor]]:
        size, device = (config.batch_size, config.seq_len), config.device
        while True:
            inputs = {
                "input_ids": torch.randint(20_000, size, device=device),
                "attention_mask": torch.ones(size, dtype=torch.long, device=device),
                "token_type_ids": torch.zeros(size, dtype=torch.long, device=device),
            }
            yield inputs, torch.ones(config.batch_size, dtype=torch.long, device=device)

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs.logits, labels, reduction="none")

    return model, batches(), loss


class _Convolution(nn.Module):
    """A convolution with its channels last, and GroupNorm(8) with its channels first."""

    def __init__(self, into: int, out: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(into, out, size, stride, size // 2, bias=False)
        self.norm = nn.GroupNorm(8, out)

    def forward(self, x: Tensor) -> Tensor:
        """Images, shape (B, channels, height, width)."""
        convolved = self.convolution(x).to(memory_format=torch.contiguous_format)
        normal: Tensor = self.norm(convolved).to(memory_format=torch.channels_last)
        return normal


class _Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the middle one takes the stride."""

    def __init__(self, into: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.first = _Convolution(into, width, 1)
        self.middle = _Convolution(width, width, 3, stride)
        self.last = _Convolution(width, out, 1)
        self.relu = nn.ReLU(inplace=True)
        changes = stride != 1 or into != out
        self.shortcut = _Convolution(into, out, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Images, shape (B, channels, height, width)."""
        inner = self.last(self.relu(self.middle(self.relu(self.first(x)))))
        inner += self.shortcut(x)
        relued: Tensor = self.relu(inner)
        return relued


def resnet50(config: ExperimentConfig) -> Workload:
    """ResNet-50 with GroupNorm(8), as opacus-fusion trains it: torchvision's, on random images.

    `image_size` is the size of its images, in pixels.
    """
    blocks, into = [], 64
    for width, number in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(number):
            blocks.append(_Bottleneck(into, width, 2 if width > 64 and index == 0 else 1))
            into = 4 * width
    first = _Convolution(3, 64, 7, 2), nn.ReLU(inplace=True)
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000)
    model = nn.Sequential(*first, nn.MaxPool2d(3, 2, 1), *blocks, *last)
    pixels = int(config.named_options["image_size"])

    def batches() -> Iterator[tuple[Any, Tensor]]:
        while True:
            images = torch.randn(config.batch_size, 3, pixels, pixels, device=config.device)
            yield images, torch.ones(config.batch_size, dtype=torch.long, device=config.device)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="none")

    return model, batches(), loss

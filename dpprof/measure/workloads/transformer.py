"""SimpleBigModel: a decoder-only transformer language model that Opacus can hook.

Shape suffixes: B batch, T sequence, D hidden, H heads, K head dimension, V vocabulary.

Written for per-sample gradients: no in-place operator on a module's output, no raw parameter on a module
with children, position ids that carry the batch dimension, an untied head.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.data import get_random_dataloader
from dpprof.vocabulary.trainers import trainer_info

Loss = Callable[[Any, Any], Tensor]


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention of four linear layers and the fused attention operator."""

    def __init__(self, hidden_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)
        self.out = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q_BHTK, k_BHTK, v_BHTK = (
            linear(x_BTD).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        return self.out(y_BHTK.transpose(1, 2).flatten(2))


def build_attention(kind: str, hidden_dim: int, num_heads: int) -> nn.Module:
    """Build the attention module for `attention=sdpa` or `attention=dp_mha`."""
    if kind == "sdpa":
        return CausalSelfAttention(hidden_dim, num_heads)
    from dpprof.measure.workloads.dp_attention import CausalDPMultiheadAttention

    return CausalDPMultiheadAttention(hidden_dim, num_heads)


class Block(nn.Module):
    """Pre-norm transformer block: attention, then an MLP of ratio 4."""

    def __init__(self, hidden_dim: int, num_heads: int, attention: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden_dim)
        self.attention = build_attention(attention, hidden_dim, num_heads)
        self.mlp_norm = nn.LayerNorm(hidden_dim)
        self.mlp_in = nn.Linear(hidden_dim, 4 * hidden_dim)
        self.mlp_out = nn.Linear(4 * hidden_dim, hidden_dim)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x_BTD))))


class SimpleBigModel(nn.Module):
    """Decoder-only transformer: token and learned position embeddings, blocks, final norm, untied head."""

    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_dim: int,
        num_layers: int,
        num_heads: int,
        max_seq_len: int,
        attention: str = "sdpa",
        activation_checkpointing: bool = False,
        is_reentrant: bool = False,
    ) -> None:
        super().__init__()
        self.activation_checkpointing, self.is_reentrant = activation_checkpointing, is_reentrant
        self.token_embedding = nn.Embedding(vocab_size, hidden_dim)
        self.position_embedding = nn.Embedding(max_seq_len, hidden_dim)
        self.blocks = nn.ModuleList(Block(hidden_dim, num_heads, attention) for _ in range(num_layers))
        self.final_norm = nn.LayerNorm(hidden_dim)
        self.head = nn.Linear(hidden_dim, vocab_size)
        self.apply(_initialise)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Token ids (B, T) -> logits (B, T, V)."""
        positions_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device).expand_as(ids_BT).contiguous()
        x_BTD = self.token_embedding(ids_BT) + self.position_embedding(positions_BT)
        for block in self.blocks:
            x_BTD = self._checkpointed(block, x_BTD) if self.activation_checkpointing else block(x_BTD)
        return self.head(self.final_norm(x_BTD))

    def _checkpointed(self, block: nn.Module, x_BTD: Tensor) -> Tensor:
        """Call a block whose activations backward computes again (Chen et al. 2016).

        Reentrant, its forward runs without gradients, so that Opacus's hooks leave it alone; otherwise they
        would keep every layer's input, and nothing would be saved. Then its input needs a gradient, behind
        frozen embeddings too. The model draws no random numbers, so no generator state is kept.
        """
        if self.is_reentrant and not x_BTD.requires_grad:
            x_BTD.requires_grad_()
        return checkpoint(block, x_BTD, use_reentrant=self.is_reentrant, preserve_rng_state=False)


def _initialise(module: nn.Module) -> None:
    """Draw small normal weights, as in GPT-2 (Radford et al. 2019, section 2.3)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def sequence_loss(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the cross-entropy averaged over each sequence's tokens: (B, T, V), (B, T) -> (B,)."""
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="none")
    return loss.view(labels_BT.shape).mean(dim=1)


def simple_big_model(config: ExperimentConfig) -> tuple[nn.Module, Iterable[Any], Loss, int]:
    """Build the built-in workload: model, batches, loss, and the tokens of a batch."""
    model = SimpleBigModel(
        vocab_size=config.vocab_size,
        hidden_dim=config.hidden_dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        max_seq_len=config.seq_len,
        attention=config.attention,
        activation_checkpointing=config.activation_checkpointing,
        is_reentrant=trainer_info(config.trainer).is_reentrant,
    )
    batches = get_random_dataloader(
        config.batch_size,
        config.seq_len,
        config.vocab_size,
        config.device,
        data=config.data,
        seed=config.seed,
    )
    return model, batches, sequence_loss, config.batch_size * config.seq_len

"""Opacus's DPMultiheadAttention with a causal forward of its own.

Opacus's own forward takes no causal mask with `batch_first=True`. Its layers are kept, for the same
checkpoints and per-sample gradients; attention is bmm and softmax, not a fused kernel.
"""

import torch
from opacus.layers import DPMultiheadAttention
from torch import Tensor


class CausalDPMultiheadAttention(DPMultiheadAttention):
    """Causal self-attention over a (B, T, D) input with Opacus's linear layers."""

    def __init__(self, hidden_dim: int, num_heads: int) -> None:
        super().__init__(hidden_dim, num_heads, batch_first=True)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D); position t attends to positions up to t."""
        batch, seq_len, _ = x_BTD.shape
        q, k, v = (
            linear(x_BTD).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)
            for linear in (self.qlinear, self.klinear, self.vlinear)
        )
        scores = torch.bmm(q * self.head_dim**-0.5, k.transpose(1, 2))
        future = torch.ones(seq_len, seq_len, dtype=torch.bool, device=x_BTD.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        y = torch.bmm(weights, v).unflatten(0, (batch, self.num_heads)).transpose(1, 2).flatten(2)
        return self.out_proj(y)

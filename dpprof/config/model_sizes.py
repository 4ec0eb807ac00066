"""The named sizes of the built-in transformer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """Dimensions of one named size. `num_parameters` of the result depends on `seq_len` too
    (learned positions), so the true count is computed from the model and logged."""

    vocab_size: int
    hidden_dim: int
    num_layers: int
    num_heads: int


MODEL_SIZES: dict[str, ModelSize] = {
    "tiny": ModelSize(vocab_size=1_000, hidden_dim=64, num_layers=2, num_heads=4),
    # At batch 4, sequence 32 the trainers' peaks relate as those of 1b at batch 4, sequence 512.
    "mini": ModelSize(vocab_size=1_000, hidden_dim=128, num_layers=4, num_heads=4),
    "small": ModelSize(vocab_size=8_000, hidden_dim=256, num_layers=4, num_heads=8),
    "medium": ModelSize(vocab_size=16_000, hidden_dim=512, num_layers=8, num_heads=8),
    "1b": ModelSize(vocab_size=32_000, hidden_dim=2_048, num_layers=24, num_heads=32),
    "7b": ModelSize(vocab_size=32_000, hidden_dim=4_096, num_layers=32, num_heads=32),
}

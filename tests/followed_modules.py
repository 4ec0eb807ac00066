"""Operators with the module that they are said to work for, and models for tests of it."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.measure.passes.modules import ModulePaths
from dpprof.measure.workloads.transformer import SimpleBigModel


class Followed(TorchDispatchMode):
    """Notes every operator called, with the module that it is said to work for."""

    def __init__(self, around: Callable[[], Any] = nullcontext) -> None:
        super().__init__()
        self.modules = ModulePaths(around)
        self._rows: list[tuple[str, str]] = []

    def __enter__(self) -> "Followed":
        self.modules.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.modules.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._rows.append((func._overloadpacket.__name__, self.modules.current()))
        return func(*args, **(kwargs or {}))

    def taken(self) -> dict[str, list[str]]:
        """The paths by operator, in the order of calls, since the last time."""
        rows, self._rows = self._rows, []
        return {name: [path for other, path in rows if other == name] for name, _ in rows}


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))


def transformer(*, activation_checkpointing: bool = False) -> SimpleBigModel:
    return SimpleBigModel(
        vocab_size=7,
        hidden_dim=4,
        num_layers=2,
        num_heads=2,
        max_seq_len=3,
        activation_checkpointing=activation_checkpointing,
    )


IDS = torch.zeros(2, 3, dtype=torch.int64)


BLOCK_LAYERS = (
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.out",
    "mlp_in",
    "mlp_out",
)


LINEARS = [f"blocks.{i}.{name}" for i in range(2) for name in BLOCK_LAYERS] + ["head"]


NORMS = [f"blocks.{i}.{name}" for i in range(2) for name in ("attention_norm", "mlp_norm")] + ["final_norm"]

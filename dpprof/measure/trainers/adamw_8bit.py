"""The state of 8-bit AdamW by its formula, for estimates.

From bitsandbytes 0.50, `bitsandbytes/optim/optimizer.py`, `Optimizer2State.init_state` (Dettmers et al. 2022,
https://arxiv.org/abs/2110.02861).
"""

from typing import Any

import torch
from torch import Tensor

_LEAST_NUMBERS = 4096  # smaller tensors keep their state in float32
_BLOCK = 256  # numbers that share a scale
_LEVELS = 256  # of each map from bytes to numbers


class AdamW8bit(torch.optim.Optimizer):
    """Has the state of bitsandbytes' optimizer of this name: its types and sizes, not its numbers.

    Of a tensor with 4,096 numbers or more it keeps two bytes a number, and two float32 for each block of 256.
    A step reads and writes each tensor once, and computes nothing that could train a model.
    """

    def __init__(self, params: Any, lr: float, *, foreach: bool = False) -> None:
        super().__init__(params, {"lr": lr})
        self._maps: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make the state of parameters that have none, and touch what an update reads and writes."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not self.state[parameter]:
                    self.state[parameter] = self._made_for(parameter)
                parameter.add_(parameter.grad, alpha=-group["lr"])
                for kept in self.state[parameter].values():
                    kept.mul_(1)

    def _made_for(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter; the maps are those of all parameters."""
        if parameter.numel() < _LEAST_NUMBERS:
            return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in ("state1", "state2")}
        if not self._maps:
            self._maps = [parameter.new_zeros(_LEVELS, dtype=torch.float32) for _ in range(2)]
        num_blocks = -(-parameter.numel() // _BLOCK)
        made = {}
        for which in (1, 2):
            made[f"state{which}"] = torch.zeros_like(parameter, dtype=torch.uint8)
            made[f"qmap{which}"] = self._maps[which - 1]
            made[f"absmax{which}"] = parameter.new_zeros(num_blocks, dtype=torch.float32)
        return made

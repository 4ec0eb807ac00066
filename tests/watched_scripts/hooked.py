"""Has hooks of its own, on a model, for all modules, and on tensors."""

import warnings
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

torch.manual_seed(0)
calls: Counter[str] = Counter()


def count(name: str) -> Any:
    """Return a hook that counts."""

    def hook(*_: object) -> None:
        calls[name] += 1

    return hook


model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
model.register_forward_pre_hook(count("pre"))
model[0].register_full_backward_hook(count("backward"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.register_step_post_hook(count("step"))
with register_module_forward_hook(count("global")):
    for number in range(30):
        optimizer.zero_grad()
        outputs = model(torch.ones(3, 4, requires_grad=True))
        outputs.register_hook(count("tensor"))
        outputs.sum().backward()
        optimizer.step()
        if number == 20:
            warnings.warn("a warning of the script's own", stacklevel=1)
print(sorted(calls.items()), f"{outputs.sum().item():.6e}")

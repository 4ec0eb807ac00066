"""Catches some errors and ends with another one, while steps are watched."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
caught: list[str] = []
nothing: dict[str, str] = {}
for _ in range(9):
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).sum()
    loss.backward()
    for wrong in (loss.backward, lambda: model(torch.ones(3, 5)), lambda: nothing["key"]):
        try:
            wrong()
        except (RuntimeError, KeyError) as error:
            caught.append(type(error).__name__)
    optimizer.step()
print(caught)
raise ValueError("bad luck")

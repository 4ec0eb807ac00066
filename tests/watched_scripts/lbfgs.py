"""A closure that the optimizer calls as often as it likes."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
calls = 0


def closure() -> torch.Tensor:
    """Return the loss, with gradients."""
    global calls
    calls += 1
    optimizer.zero_grad()
    loss: torch.Tensor = (model(torch.ones(3, 4)) - torch.arange(3.0)[:, None]).square().mean()
    loss.backward()
    return loss


for _ in range(25):
    last = optimizer.step(closure)
print(f"loss {last.item():.6f} after {calls} calls")

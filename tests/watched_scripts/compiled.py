"""A compiled model, and a compiled function of its own."""

import torch
from torch import nn

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
model = torch.compile(network, backend="aot_eager")
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)


@torch.compile(backend="eager")
def loss_of(outputs: torch.Tensor) -> torch.Tensor:
    """Return the loss."""
    return outputs.square().mean()


for _ in range(25):
    optimizer.zero_grad()
    loss = loss_of(model(torch.ones(3, 4)))
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")

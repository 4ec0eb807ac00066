"""Two physical batches in each step. `dpprof watch examples/own_loops/accumulation.py`."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(80):
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    loss = nn.functional.cross_entropy(model(images), labels) / 2
    loss.backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.6f}")

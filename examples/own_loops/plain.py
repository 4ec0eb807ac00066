"""A plain loop: classify random images. `dpprof watch examples/own_loops/plain.py`."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(40):
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")

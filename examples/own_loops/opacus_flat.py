"""Opacus's flat clipping, Poisson-sampled. `dpprof watch examples/own_loops/opacus_flat.py`."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
data = TensorDataset(torch.randn(512, 1, 28, 28), torch.randint(10, (512,)))
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=DataLoader(data, batch_size=32),
    noise_multiplier=1.0,
    max_grad_norm=1.0,
)
for _ in range(2):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.6f}, epsilon {engine.get_epsilon(delta=1e-5):.6f}")

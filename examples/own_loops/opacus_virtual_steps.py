"""Opacus's virtual steps. `dpprof watch examples/own_loops/opacus_virtual_steps.py`."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
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
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=16, optimizer=optimizer) as physical:
        for images, labels in physical:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
print(f"loss {loss.item():.6f}, epsilon {engine.get_epsilon(delta=1e-5):.6f}")

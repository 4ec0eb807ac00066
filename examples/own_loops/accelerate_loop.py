"""Accelerate's loop, two batches in each step. `dpprof watch examples/own_loops/accelerate_loop.py`."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(512, 1, 28, 28), torch.randint(10, (512,)))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16))
for _ in range(2):
    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
print(f"loss {loss.item():.6f}")

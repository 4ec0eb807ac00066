"""Batches from other processes, kept or made anew for each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4))
for is_kept in (False, True):
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1, persistent_workers=is_kept)
    for _ in range(2):
        for (values,) in loader:
            optimizer.zero_grad()
            loss = model(values).square().mean()
            loss.backward()
            optimizer.step()
print(f"loss {loss.item():.6f}")

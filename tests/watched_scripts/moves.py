"""Changes the directory and ends with an exit code."""

import os
import tempfile

import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
folder = tempfile.mkdtemp()
for number in range(30):
    if number == 5:
        os.chdir(folder)
    weight.square().sum().backward()
    optimizer.step()
print(os.listdir(), f"{weight.sum().item():.6e}")
raise SystemExit(3)

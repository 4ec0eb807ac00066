"""Trains in a thread while another one evaluates."""

import threading

import torch
from torch import nn

torch.manual_seed(0)
model, other = nn.Linear(4, 2), nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
is_over = threading.Event()


def train() -> None:
    """Do all steps."""
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
    is_over.set()


def evaluate() -> None:
    """Call another model all the while."""
    while not is_over.wait(0.001):
        with torch.no_grad():
            other(torch.ones(3, 4))


threads = [threading.Thread(target=train), threading.Thread(target=evaluate)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{model.weight.sum().item():.6f}")

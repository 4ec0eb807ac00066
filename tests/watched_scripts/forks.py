"""Forks that train, that end by a signal and that raise."""

import os
import signal
import sys
import time

import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)


def step() -> None:
    """Do a training step."""
    optimizer.zero_grad()
    (weight * torch.ones(3, 4)).sum().backward()
    optimizer.step()


codes = []
for number in range(24):
    step()
    if number % 6 == 0:
        if (child := os.fork()) == 0:
            step()
            if number == 6:
                time.sleep(600)
            sys.exit(number)
        if number == 6:
            os.kill(child, signal.SIGTERM)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes, f"{weight.sum().item():.6f}")

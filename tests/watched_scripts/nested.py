"""Measures itself, a loop within another one."""

import torch

import dpprof

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
with dpprof.profile(name="outer", warmup_steps=1, measured_steps=2) as outer:
    for _ in range(4):
        weight.square().sum().backward()
        optimizer.step()
        outer.step()
    with dpprof.profile(name="inner", warmup_steps=1, measured_steps=2) as inner:
        for _ in range(14):
            with dpprof.phase("all of it"):
                weight.square().sum().backward()
            optimizer.step()
            inner.step()
print(inner.is_complete, outer.is_complete, sorted(inner.figures)[:5], f"{weight.sum().item():.6e}")

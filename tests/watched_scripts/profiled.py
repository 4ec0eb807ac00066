"""Runs torch's profiler by a schedule, and once around everything."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
found: list[int] = []


def keep(profiler: profile) -> None:
    """Keep how often the range was seen."""
    found.append([event.name for event in profiler.events()].count("mine"))


def train(steps: int, profiler: profile | None = None) -> None:
    """Do some steps."""
    for _ in range(steps):
        with record_function("mine"):
            weight.square().sum().backward()
        optimizer.step()
        if profiler is not None:
            profiler.step()


cpu = [ProfilerActivity.CPU]
with profile(
    activities=cpu, schedule=schedule(wait=3, warmup=3, active=6, repeat=2), on_trace_ready=keep
) as one:
    train(30, one)
train(2)
with profile(activities=cpu, on_trace_ready=keep):
    train(3)
print(found, f"{weight.sum().item():.6e}")

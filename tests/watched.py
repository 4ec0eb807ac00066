"""Runs scripts, as they are and under `dpprof watch`."""

import subprocess
from pathlib import Path

from example_runs import known, only_run
from forked import fork

from dpprof.record.record import Record

STEP = """
import os, sys, time, torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
def step():
    optimizer.zero_grad()
    (weight * torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def watch(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run `dpprof watch`, in a fork of a process that has imported torch and dpprof."""
    return fork("-m", "dpprof", "watch", *arguments, cwd=cwd)


def record_in(path: Path) -> Record:
    return known(only_run(path).read_record())

"""Workloads one of whose ranks fails at a chosen place."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from example_workloads import mlp

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.base import TrainerBase
from dpprof.vocabulary.messages import _OOM_WORDS


def fails(config: ExperimentConfig) -> tuple[Any, ...]:
    """Rank `rank` does as `how` says when `phase` begins for the `step`th time."""
    options = config.named_options
    if dist.is_initialized():
        does = _WAYS[options["how"]] if dist.get_rank() == options["rank"] else _say_that_it_is_there
        TrainerBase.phase = _failing(TrainerBase.phase, options, does)  # type: ignore[method-assign]
    return mlp(config)


def _failing(
    begin: Callable[..., AbstractContextManager[None]], options: dict[str, Any], does: Callable[[], None]
) -> Any:
    left = options.get("step", 2)

    @contextmanager
    def phase(self: TrainerBase, name: str) -> Iterator[None]:
        nonlocal left
        with begin(self, name):
            if name == options["phase"]:
                left -= 1
                if left == 0:
                    does()
            yield

    return phase


def _say_that_it_is_there() -> None:
    if place := os.environ.get("DPPROF_TEST_RANKS_THERE"):
        (Path(place) / str(dist.get_rank())).touch()


def _hang() -> None:
    _say_that_it_is_there()
    while True:
        time.sleep(1)


def _raise() -> None:
    raise RuntimeError("mine alone")


def _refuse() -> None:
    raise ValueError("mine alone")


def _run_out() -> None:
    raise RuntimeError(f"{_OOM_WORDS[0]}: tried to allocate too much")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_WAYS = {"kill": _kill, "hang": _hang, "raise": _raise, "refuse": _refuse, "oom": _run_out}

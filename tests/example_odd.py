"""A workload that does, by batch size, what no workload should, for the tests."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from example_workloads import mlp
from torch import Tensor

from dpprof.config.experiment import ExperimentConfig

# What the measuring process was given, from where it started.
FOLDER = Path(sys.argv[-1]).absolute()
_num_built = 0


def odd(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP; something happens in the second step of the pass that the table names."""
    global _num_built
    _num_built += 1
    model, batches, loss = mlp(config)
    num_pass, strike = STRIKES[config.batch_size]
    calls = 0

    def odd_loss(outputs: Tensor, targets: Tensor) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 and _num_built == num_pass:
            strike()
        return loss(outputs, targets)

    return model, batches, odd_loss


def exit_as_if_done() -> None:
    os._exit(0)


def delete_the_folder() -> None:
    shutil.rmtree(FOLDER)


def damage_the_record_and_the_log() -> None:
    (FOLDER / "record.json").write_text("{")
    (FOLDER / "run.log").unlink()
    (FOLDER / "run.log").mkdir()
    os.abort()


def close_and_clutter_all() -> None:
    """Nothing of this keeps it from being measured."""
    os.chdir(FOLDER)
    FOLDER.joinpath("own.txt").write_text("of the workload's own")
    FOLDER.joinpath("data").symlink_to("/etc")
    FOLDER.joinpath("tensorboard", "host").symlink_to("/etc/hostname")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    sleeping = "import os, time; open('daemon', 'w').write(str(os.getpid())); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", sleeping], start_new_session=True)
    while not FOLDER.joinpath("daemon").exists():
        pass
    os.chdir("/")
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    os.close(2)
    os.fork()  # and both go on


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def need_all_memory() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def raise_an_error() -> None:
    raise RuntimeError("a fault in the workload <script>alert(1)</script>")


# In the first pass or in the second.
STRIKES: dict[int, tuple[int, Callable[[], None]]] = {
    4: (1, delete_the_folder),
    5: (2, damage_the_record_and_the_log),
    6: (2, exit_as_if_done),
    7: (1, close_and_clutter_all),
    8: (1, be_killed),
    9: (1, need_all_memory),
    10: (1, raise_an_error),
}


class Speechless(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def speechless(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, with a loss that raises such an error."""
    model, batches, _ = mlp(config)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise Speechless

    return model, batches, loss


def interrupting(config: ExperimentConfig) -> tuple[Any, ...]:
    """The MLP, with a loss that raises what Ctrl-C raises."""
    model, batches, _ = mlp(config)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise KeyboardInterrupt("mine")

    return model, batches, loss


def tokens_in_words(config: ExperimentConfig) -> tuple[Any, ...]:
    """Its tokens_per_batch is no number."""
    return *mlp(config), "128"


def tokens_of_numpy(config: ExperimentConfig) -> tuple[Any, ...]:
    """Its tokens_per_batch is a whole number of numpy's."""
    import numpy as np

    return *mlp(config), np.int64(128)

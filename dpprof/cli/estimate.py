"""`dpprof estimate`: predict the needs of a grid of experiments on fake tensors."""

from dpprof.cli.command import Asked, running_command
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.grid import build_grid
from dpprof.vocabulary.formats import counted


@running_command
def estimate(asked: Asked) -> None:
    """Estimate a grid of experiments without running it.

    The training step of every experiment runs on fake tensors, which have shapes and no data: nothing is
    allocated, and no GPU is needed. Gives the peak memory by category and phase, the bytes moved and the
    FLOPs, whether it fits a device, and predicts how long a step takes there.

    \b
    dpprof estimate --target H100   # the default grid: 1b, all trainers
    dpprof estimate --model-sizes medium --seq-lens 1024 --device-memory-gib 24
    dpprof estimate --device cpu --model-sizes small --trainers flat,ghost
    """
    grid = build_grid(asked.values, EstimatingConfig, cuda_available=lambda: True, look_for=asked.look_for)

    from dpprof.cli.grid_run import run_grid

    workers = asked.at_a_time(next(iter(grid.experiments.values())))
    opening = f"{counted(len(grid.experiments), 'experiment')} {asked.on_fake_tensors(workers)}"
    run_grid(asked, grid, opening, workers)

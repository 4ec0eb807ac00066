"""`dpprof sweep`: measure a grid of experiments."""

from dpprof.cli.command import Asked, running_command
from dpprof.config.grid import build_grid
from dpprof.vocabulary.formats import counted


@running_command
def sweep(asked: Asked) -> None:
    """Measure a grid of experiments.

    Trainers x batch sizes x sequence lengths x model sizes x precisions, one clean process each. On a CPU the
    default sweep also estimates the 1b model on an H100, for its advice.

    \b
    dpprof sweep
    dpprof sweep --trainers flat,ghost --batch-sizes 2,4,8 --seq-lens 256
    dpprof sweep --config scripts/profiling_config.json
    dpprof sweep --sweep-name mine --resume true     # go on with an earlier one
    """
    has_cuda = asked.launcher.machine.cuda_available
    grid = build_grid(asked.values, cuda_available=has_cuda, look_for=asked.look_for)
    first = next(iter(grid.experiments.values()))
    if not grid.config.resume:
        asked.start_early(first)

    from dpprof.cli.grid_run import run_grid

    opening = (
        f"{counted(len(grid.experiments), 'experiment')} on {first.device}, "
        "each in a clean process of its own"
    )
    if grid.foreseen:
        opening += f"; then {counted(len(grid.foreseen), 'estimate')} of a larger model"
    run_grid(asked, grid, opening)

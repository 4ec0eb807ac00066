"""`dpprof snippet`: write a plan's recommended row as a training script."""

import click

from dpprof.cli.compare import warn
from dpprof.cli.options import STANDARD_OUTPUT, output_option, write_output
from dpprof.cli.streams import waiting
from dpprof.errors import refuse


@click.command()
@click.argument("plan", metavar="PLAN.json")
@output_option("Write the script there.", default=STANDARD_OUTPUT)
@click.option(
    "--trainer", default="", metavar="NAME", help="Another trainer of the plan than the recommended."
)
@click.option(
    "--logical-batch", default="", metavar="N", help="Another logical batch of the plan than the recommended."
)
def snippet(plan: str, output: str, trainer: str, logical_batch: str) -> None:
    """Write the training script for a plan.

    One Python file that trains as the recommended row says, with every number filled in: Poisson sampling,
    physical batches, clipping, noise, Opacus's accountant, checkpoints. It runs as it is, on random data; two
    functions are to be replaced, the model and the data set.

    \b
    dpprof snippet runs/plan-20260101-120000/plan.json --output train.py
    dpprof snippet runs/plan-20260101-120000/plan.json --trainer bk > train.py
    """
    from dpprof.drive.planned_row import plan_data
    from dpprof.pages.snippet import snippet as written

    batch = int(logical_batch) if logical_batch.isdecimal() and len(logical_batch) < 20 else 0
    if logical_batch and not batch:
        raise refuse("logical_batch", logical_batch, "a whole number above 0")
    with waiting("writing"):
        found = written(plan_data(plan), trainer, batch)
    write_output(output, found.text)
    for note in found.notes:
        warn(note)

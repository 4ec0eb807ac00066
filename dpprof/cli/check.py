"""`dpprof check`: find problems of a model with Opacus or a trainer before timing anything."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from dpprof.cli.command import Asked
from dpprof.cli.options import GroupedOptions, options_of
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.grid import experiments_to_check
from dpprof.errors import ExperimentsFailed, refuse
from dpprof.vocabulary.trainers import short_name

if TYPE_CHECKING:
    from dpprof.record.check import CheckAnswer


@click.command(cls=GroupedOptions, params=options_of("check"))
@click.argument("workload_argument", metavar="[WORKLOAD]", default="", required=False)
def check(workload_argument: str, **options: str | None) -> None:
    """Check a model before anything is timed.

    Takes one small step with each trainer and reports every problem: the module and what to change. Tries,
    too, whether samples change the losses of others in their batch, so that no training of it is private.
    WORKLOAD is package.module:factory or huggingface:NAME, or the built-in model if left out. Ends with exit
    code 3 if a trainer cannot train the model, and with 2 if there is no such workload.

    \b
    dpprof check huggingface:gpt2
    dpprof check mymodel:gpt2 --trainers flat,ghost --seq-len 128
    """
    asked = Asked("check", options, ExitStack())
    if workload_argument:
        if asked.values.get("workload", workload_argument) != workload_argument:
            words = f"what the argument says, {workload_argument}"
            raise refuse("workload", asked.values["workload"], words)
        asked.values["workload"] = workload_argument
    experiments = experiments_to_check(asked.values)
    asked.look_for(experiments[0].workload)
    asked.drive.check_writable()
    trains = _checked(asked, experiments).trains
    failed = [short_name(trainer) for trainer, is_able in trains.items() if not is_able]
    if failed:
        raise ExperimentsFailed(f"{len(failed)} of {len(trains)} trainers fail: {', '.join(failed)}")


def _checked(asked: Asked, experiments: Sequence[ExperimentConfig]) -> "CheckAnswer":
    """Check the model, and print and keep the answer."""
    from rich.text import Text

    from dpprof.cli.console import open_console
    from dpprof.drive.claim import new_folder
    from dpprof.drive.jobs import Runner
    from dpprof.drive.workload_check import check_training
    from dpprof.pages.check import page
    from dpprof.pages.terminal import show, write
    from dpprof.pages.written import write_answer

    console, first = open_console(), experiments[0]
    write(
        console,
        f"checking {first.workload}: one step of each trainer with {first.batch_size} samples of "
        f"{first.seq_len} tokens; seconds for a small model, half a minute for one of GPT-2's size, "
        f"{asked.drive.time_limit}",
    )
    with console.status("importing torch and Opacus") as status:
        runner = Runner(asked.launcher, asked.drive.timeout_s, lambda line: status.update(Text(line)))
        answer = check_training(experiments, runner)
    folder = new_folder(asked.drive.runs_dir, "check")
    shown = page(answer, first.workload)
    write_answer(folder, "check", shown, dataclasses.asdict(answer))
    show(console, shown)
    write(console, f"\nkept in {folder}")
    return answer

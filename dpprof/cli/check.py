"""`dpprof check`: find problems of a model with Opacus or a trainer before timing anything."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from dpprof.cli.command import Asked
from dpprof.cli.options import GroupedOptions, options_of
from dpprof.config.grid import experiments_to_check
from dpprof.errors import ExperimentsFailed, refuse
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.trainers import trainer_info

if TYPE_CHECKING:
    from rich.console import Console

    from dpprof.record.check import CheckAnswer


@click.command(cls=GroupedOptions, params=options_of("check"))
@click.argument("workload_argument", metavar="[WORKLOAD]", default="", required=False)
def check(workload_argument: str, **options: str | None) -> None:
    """Check a model before anything is timed.

    Takes one small step with each trainer and reports every problem: the module and what to change.
    WORKLOAD is package.module:factory or huggingface:NAME, or the built-in model if left out. Ends with exit
    code 3 if a trainer cannot train the model, and with 2 if there is no such workload. Nothing is kept.

    \b
    dpprof check huggingface:gpt2
    dpprof check mymodel:gpt2 --trainers flat,ghost --seq-len 128
    """
    from dpprof.drive.requirements import check_packages

    check_packages()

    asked = Asked("check", options, ExitStack())
    if workload_argument:
        if asked.values.get("workload", workload_argument) != workload_argument:
            words = f"what the argument says, {workload_argument}"
            raise refuse("workload", asked.values["workload"], words)
        asked.values["workload"] = workload_argument
    experiments = experiments_to_check(asked.values)
    first = experiments[0]
    asked.look_for(first.workload)

    from rich.text import Text

    from dpprof.cli.console import open_console
    from dpprof.drive.workload_check import check_training

    console = open_console()
    sizes = f"{first.batch_size} samples of {first.seq_len} tokens, {asked.drive.time_limit}"
    console.print(
        f"checking {first.workload}: one step of each trainer with {sizes}", markup=False, emoji=False
    )
    with console.status("importing torch and Opacus") as status:
        answer = check_training(
            experiments, asked.launcher, asked.drive.timeout_s, lambda line: status.update(Text(line))
        )
    _print(console, answer)
    failed = [trainer_info(trainer).short_name for trainer, trains in answer.trains.items() if not trains]
    if failed:
        raise ExperimentsFailed(f"{len(failed)} of {len(answer.trains)} trainers fail: {', '.join(failed)}")


def _print(console: "Console", answer: "CheckAnswer") -> None:
    from rich.markup import escape
    from rich.table import Table

    from dpprof.pages.terminal import table

    console.print(answer.seen, markup=False, emoji=False)
    for text in answer.changed:
        console.print(f"changed: {text}", markup=False, emoji=False)
    rows = []
    numbered = list(enumerate(answer.findings, start=1))
    for trainer, trains in answer.trains.items():
        of = [(number, finding) for number, finding in numbered if trainer in finding.trainers]
        changes, notes = (
            ", ".join(str(number) for number, finding in of if finding.is_warning is kind)
            for kind in (False, True)
        )
        outcome = "trains" if trains else "fails"
        rows.append((trainer_info(trainer).short_name, outcome, changes or "-", notes or "-"))
    columns = [(name, str) for name in ("trainer", "one step", "to change", "to know")]
    console.print()
    console.print(table("", columns, rows))
    console.print()
    sentences = Table.grid(padding=(0, 1))
    for number, finding in numbered:
        kind = "[yellow]to know[/]" if finding.is_warning else "[red]to change[/]"
        names = ", ".join(trainer_info(trainer).short_name for trainer in finding.trainers)
        also = f"\n[dim]the same in {escape(listed(finding.also))}[/]" if finding.also else ""
        sentences.add_row(f"{number}.", f"{kind} ({escape(names)}): {escape(finding.text)}{also}")
    console.print(sentences)
    if not answer.findings:
        console.print("nothing to change")

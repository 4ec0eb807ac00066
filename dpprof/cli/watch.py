"""`dpprof watch`: measure the training loop of a script."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpprof.cli.options import GroupedOption, GroupedOptions, options_of
from dpprof.cli.streams import complain
from dpprof.config.entry_points import WatchConfig
from dpprof.config.options import TITLES
from dpprof.errors import DpprofError, refuse
from dpprof.process import stopping_signals
from dpprof.vocabulary.settings import take

if TYPE_CHECKING:
    from dpprof.own_loop import Watched


class _Watched(GroupedOption):
    heading = TITLES[WatchConfig]


@click.command(
    cls=GroupedOptions,
    params=options_of("watch"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "is_module", is_flag=True, cls=_Watched, metavar="", help="SCRIPT is a module.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]...")
def watch(command: tuple[str, ...], is_module: bool, **options: str | None) -> None:
    """Measure the training loop of a script of your own.

    Runs SCRIPT with its ARGUMENTS, as python does. A training step ends with the step of the script's first
    optimizer. Some steps warm up, the next are timed; then the ledger, with the allocator's events, and a
    trace are each kept for some. From then on the script runs as ever. Its output, results and exit code
    stay its own.

    \b
    dpprof watch train.py --epochs 1
    dpprof watch --end true --log true -m my_package.train
    dpprof watch --target H100 train.py
    mlflow run . -e watch -P script=train.py -P arguments="--epochs 1"

    With --target, no GPU is needed: the script's steps run on fake tensors, which have shapes and no data. It
    ends after --warmup-steps and --measured-steps, which are estimated.
    """
    asked, _ = take(WatchConfig, {name: value for name, value in options.items() if value is not None})
    script, *others = [asked.script, *command] if asked.script else command or [""]
    arguments = [*asked.split_arguments, *others]
    if not is_module and not Path(script).is_file():
        raise refuse("script", script, "the path of a Python script")
    name = asked.name or "".join(
        c if c.isalnum() else "_" for c in (script if is_module else Path(script).stem)
    )
    # Asked now: a script that starts the run of `mlflow run` takes the variable away.
    is_logged = asked.log == "true" or (asked.log == "auto" and "MLFLOW_RUN_ID" in os.environ)

    from dpprof.own_loop import Watched

    taken = ("runs_dir", "warmup_steps", "measured_steps", "end", "target")
    how, is_estimated = {each: getattr(asked, each) for each in taken}, asked.target != "none"
    measured = Watched(script, arguments, is_module=is_module, name=name, **how)
    for number in set(stopping_signals()) - {signal.SIGINT}:
        signal.signal(number, signal.SIG_DFL)  # they end a script, and its forks, as without dpprof
    start, process = Path.cwd(), os.getpid()
    code = measured.run()
    if process != os.getpid():
        sys.exit(code)  # a fork of the script's
    try:
        with _directory(start):  # of MLflow's store, while the script may have gone elsewhere
            _tell(measured, is_logged=is_logged, is_estimated=is_estimated)
    except DpprofError as error:
        if is_estimated and not code:
            raise
        complain(f"dpprof: {error}")
    if code:
        sys.exit(code)


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Work in a directory, and then again in the one from before, if it is still there."""
    with ExitStack() as stack:
        with suppress(FileNotFoundError):
            stack.callback(os.chdir, os.getcwd())
        os.chdir(path)
        yield


def _tell(measured: "Watched", *, is_logged: bool, is_estimated: bool) -> None:
    """Show what was measured, and log it if asked. Raises DpprofError if nothing was."""
    from dpprof.record.figures.capacity import OF_OWN_LOOP

    path, run_id = measured.result.folder.path, measured.log() if is_logged else None
    if path.is_relative_to(here := Path.cwd()):
        path = path.relative_to(here)
    if os.environ.get("RANK", "0") != "0":
        return
    if not sys.stdout.closed:  # by the script
        measured.show()
    if run_id or not is_logged:
        then = f"and is run {run_id} in MLflow" if run_id else "and dpprof log puts it into MLflow"
        complain(f"dpprof: everything is kept in {path}, {then}")
    if is_estimated:
        complain(f"dpprof: {OF_OWN_LOOP}; the script was ended after its estimate")

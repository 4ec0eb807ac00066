"""`dpprof watch`: measure the training loop of a script."""

import sys
from pathlib import Path
from typing import Any

import click

from dpprof.cli.streams import complain
from dpprof.errors import ConfigError, DpprofError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option("--name", default="", help="Name of the run; the script's by default.")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of the run's folder.")
@click.option(
    "--warmup-steps", default=3, show_default=True, type=click.IntRange(1), help="Steps before all else."
)
@click.option("--measured-steps", default=10, show_default=True, type=click.IntRange(1), help="Timed steps.")
@click.option("--end", is_flag=True, help="End the script when everything is measured.")
@click.option("--target", default="none", help="GPU to estimate the loop for, instead of measuring it.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def watch(script: str, arguments: tuple[str, ...], **asked: Any) -> None:
    """Measure the training loop of a script that knows nothing of dpprof.

    Runs SCRIPT with its ARGUMENTS, as python does. A training step ends with the step of the script's first
    optimizer. Some steps warm up, the next are timed; then the ledger, with the allocator's events, and a
    trace are each kept for some. From then on the script runs as ever. Its output, results and exit code
    stay its own.

    \b
    dpprof watch train.py --epochs 1
    dpprof watch --end -m my_package.train
    dpprof watch --target H100 train.py

    With --target, no GPU is needed: the script's steps run on fake tensors, which have shapes and no data. It
    ends after --warmup-steps and --measured-steps, which are estimated.
    """
    is_module, name = asked.pop("is_module"), asked.pop("name")
    if not is_module and not Path(script).is_file():
        raise ConfigError(f"SCRIPT: got {script!r}, allowed: the path of a Python script")
    name = name or "".join(c if c.isalnum() else "_" for c in (script if is_module else Path(script).stem))

    from dpprof.pages.own_loop import Watched
    from dpprof.record.figures.capacity import OF_OWN_LOOP

    measured = Watched(script, arguments, is_module=is_module, name=name, **asked)
    code = measured.run()
    try:
        measured.show()
    except DpprofError as error:
        if measured.on_target is not None and not code:
            raise
        complain(f"dpprof: {error}")
    else:
        assert measured.folder is not None
        complain(f"dpprof: everything is kept in {measured.folder.path}; dpprof log puts it into MLflow")
        if measured.on_target is not None:
            complain(f"dpprof: {OF_OWN_LOOP}; the script was ended after its estimate")
    if code:
        sys.exit(code)

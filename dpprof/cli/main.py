"""The `dpprof` command: find the command to run, and turn errors into one line and an exit code."""

import errno
import os
import signal
import sys
import traceback
from tempfile import NamedTemporaryFile
from typing import NoReturn

import click

from dpprof import __version__
from dpprof.cli.advise import advise
from dpprof.cli.calibrate import calibrate
from dpprof.cli.check import check
from dpprof.cli.compare import compare
from dpprof.cli.estimate import estimate
from dpprof.cli.export import export
from dpprof.cli.fit import fit
from dpprof.cli.log import log
from dpprof.cli.ncu_import import ncu_import
from dpprof.cli.plan import plan
from dpprof.cli.profile import profile
from dpprof.cli.roofline import roofline
from dpprof.cli.show import show
from dpprof.cli.snippet import snippet
from dpprof.cli.streams import complain, lost_output, open_streams
from dpprof.cli.summarize import summarize
from dpprof.cli.sweep import sweep
from dpprof.cli.test import test
from dpprof.cli.verify import verify
from dpprof.cli.watch import watch
from dpprof.errors import ConfigError, DpprofError, Interrupted, describe_error, shortened, shown, writable
from dpprof.process import end_process, stopping_signals

_LONGEST = 400  # characters of a message from elsewhere
MEASURE = "Measure: training runs on this machine"
PREDICT = "Predict: on fake tensors, no GPU needed"
READ = "Read what was measured or predicted"
COMMANDS = {
    MEASURE: (check, test, verify, profile, sweep, watch, calibrate),
    PREDICT: (estimate, fit, advise, plan, snippet),
    READ: (compare, show, roofline, summarize, export, log, ncu_import),
}


class GroupedCommands(click.Group):
    """A group of commands listed under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each heading, with names padded to one width."""
        width = max(map(len, self.commands))
        room = formatter.width - width - 6
        for heading, commands in COMMANDS.items():
            rows = [(str(c.name).ljust(width), c.get_short_help_str(room)) for c in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(
    cls=GroupedCommands,
    commands=[command for commands in COMMANDS.values() for command in commands],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dpprof")
def cli() -> None:
    """Measure what differential privacy costs in memory, memory traffic and time.

    \b
    What does it cost on this machine, and which algorithm is best?
      dpprof sweep
    What fits a GPU that is not here?
      dpprof fit --target H100
    Given a privacy budget: which batch, how much noise, how long?
      dpprof plan --target H100 --dataset-size 1000000
    Where do the memory and the time of my own script go?
      dpprof watch train.py

    Every experiment runs in a clean process of its own, leaves a folder under --runs-dir, and becomes a run
    in MLflow, which `mlflow ui` shows. `dpprof COMMAND --help` has examples and what a command needs first,
    `dpprof COMMAND --help-all` every option.
    """


def main() -> None:
    """Run the command line and end the process.

    Exit codes: 0 done (out of memory is a result, not an error), 1 the runs folder or standard output can no
    longer be written, or an internal error, 2 an option, the workload or the machine cannot be used, 3 an
    experiment, its gradient check or `verify` failed, or a step of `check` did, 4 regression from the
    baseline, 5 MLflow could not be used, 6 a gradient check or `verify` could not tell, 130 stopped by
    Ctrl-C, SIGTERM, SIGHUP or SIGQUIT.
    """
    open_streams()
    for number in stopping_signals():
        if number != signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        arguments = sys.argv[1:] or ["--help"]
        for argument in arguments:
            if argument != writable(argument):  # pages and MLflow cannot hold what could not be decoded
                raise ConfigError(f"got {shown(argument)}, allowed: text in the encoding of this terminal")
        cli.main(arguments, standalone_mode=False)
    except DpprofError as error:
        _end(str(error), error.exit_code)
    except click.ClickException as error:
        _end(shortened(error.format_message(), _LONGEST), ConfigError.exit_code)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _end(f"got {shown(error.filename)}, allowed: a shorter name", ConfigError.exit_code)
        _end(f"stopped: {error}", DpprofError.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _end("stopped", Interrupted.exit_code)
    except Exception as error:
        said = shortened(describe_error(error), _LONGEST)
        _end(f"internal error: {said}; the traceback is in {_kept(error)}", DpprofError.exit_code)
    lost = lost_output()
    if lost is not None:
        _end(f"not all of the output could be written: {lost.strerror}", DpprofError.exit_code)


def _kept(error: Exception) -> str:
    """Write an error's traceback to a new file and return its path."""
    try:
        with NamedTemporaryFile("wb", prefix="dpprof-", suffix=".txt", delete=False) as file:
            file.write(writable("".join(traceback.format_exception(error))).encode())
            return file.name
    except OSError as unwritable:
        return f"no file ({unwritable})"


def _end(message: str, code: int) -> NoReturn:
    complain(f"dpprof: {' '.join(map(str.strip, message.splitlines()))}")
    end_process(code)

"""The `dpprof` command: find the command to run, and turn errors into one line and an exit code."""

import errno
import os
import signal
import sys
import traceback
from importlib import import_module
from tempfile import NamedTemporaryFile
from typing import NoReturn

import click

from dpprof import __version__
from dpprof.cli.streams import complain, lost_output, open_streams
from dpprof.errors import ConfigError, DpprofError, Interrupted, describe_error, shortened, shown, writable
from dpprof.process import end_process, stopping_signals

_LONGEST = 400  # characters of a message from elsewhere
# Each command's first line of help: a module of that name here has the command.
COMMANDS = {
    "Measure: training runs on this machine": {
        "check": "Check a model before anything is timed.",
        "test": "Check every trainer on this machine.",
        "verify": "Verify that trainers train as DP-SGD does.",
        "profile": "Measure one experiment.",
        "sweep": "Measure a grid of experiments.",
        "watch": "Measure the training loop of a script of your own.",
        "calibrate": "Measure the times of operators on this machine.",
    },
    "Predict: on fake tensors, no GPU needed": {
        "estimate": "Estimate a grid of experiments without running it.",
        "fit": "Find the largest batch that fits a device.",
        "advise": "Advise what to change when it does not fit, or is slow.",
        "plan": "Plan a training from its privacy budget.",
        "snippet": "Write the training script for a plan.",
    },
    "Read what was measured or predicted": {
        "compare": "Set runs side by side.",
        "show": "Show one experiment's memory and traffic.",
        "roofline": "Compare runs with their machine's limits.",
        "summarize": "Summarize run folders.",
        "export": "Export runs, or one run's memory, for other programs.",
        "log": "Log run folders to MLflow.",
        "ncu-import": "Show the hardware counters of a report.",
    },
}


class GroupedCommands(click.Group):
    """A group of commands listed under headings, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"dpprof.cli.{name}"), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each heading, with names padded to one width."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), told) for name, told in commands.items()])


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"]})
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

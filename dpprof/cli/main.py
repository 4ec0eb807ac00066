"""The `dpprof` command: finds the command to run, and turns errors into one line and an exit code."""

import errno
import os
import signal
import sys
from typing import NoReturn

import click

from dpprof import __version__
from dpprof.cli.advise import advise
from dpprof.cli.check import check
from dpprof.cli.compare import compare
from dpprof.cli.estimate import estimate
from dpprof.cli.export import export
from dpprof.cli.fit import fit
from dpprof.cli.help import GroupedCommands
from dpprof.cli.log import log
from dpprof.cli.ncu_import import ncu_import
from dpprof.cli.plan import plan
from dpprof.cli.profile import profile
from dpprof.cli.roofline import roofline
from dpprof.cli.show import show
from dpprof.cli.snippet import snippet
from dpprof.cli.streams import complain, cut, is_text, lost_output, open_streams
from dpprof.cli.summarize import summarize
from dpprof.cli.sweep import sweep
from dpprof.cli.test import test
from dpprof.cli.verify import verify
from dpprof.errors import ConfigError, DpprofError, Interrupted
from dpprof.process import end_process, stopping_signals
from dpprof.settings import shown

MEASURE = "Measure: training runs on this machine"
PREDICT = "Predict: on fake tensors, no GPU needed"
READ = "Read what was measured or predicted"
# Every command with the heading under which `dpprof --help` lists it.
COMMANDS = {
    check: MEASURE,
    test: MEASURE,
    verify: MEASURE,
    profile: MEASURE,
    sweep: MEASURE,
    estimate: PREDICT,
    fit: PREDICT,
    advise: PREDICT,
    plan: PREDICT,
    snippet: PREDICT,
    compare: READ,
    show: READ,
    roofline: READ,
    summarize: READ,
    export: READ,
    log: READ,
    ncu_import: READ,
}


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dpprof")
def cli() -> None:
    """Measure what differential privacy costs in memory, memory traffic and time.

    Every experiment runs in a clean process of its own, leaves a folder under --runs-dir, and becomes a run
    in MLflow (`mlflow ui` shows them). Start with `dpprof test`, then `dpprof sweep`.
    """


for _command, _heading in COMMANDS.items():
    cli.add_under(_heading, _command)


def main() -> None:
    """Run the command line and end the process.

    Exit codes: 0 done (running out of memory is a finding, not a fault), 1 the runs folder or standard output
    can no longer be written, 2 an option, the workload or the machine is not usable, 3 an experiment, its
    gradient check or `verify` failed, or a step of `check` did, 4 something got worse than its baseline,
    5 MLflow could not be used, 6 a gradient check or `verify` could not tell, 130 stopped by Ctrl-C, SIGTERM,
    SIGHUP or SIGQUIT.
    """
    open_streams()
    for number in stopping_signals():
        if number != signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        for argument in sys.argv[1:]:
            if not is_text(argument):
                raise ConfigError(f"got {shown(argument)}, allowed: text in the encoding of this terminal")
        cli.main(standalone_mode=False)
    except DpprofError as error:
        _end(str(error), error.exit_code)
    except click.ClickException as error:
        _end(cut(error.format_message()), ConfigError.exit_code)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _end(f"got {shown(error.filename)}, allowed: a shorter name", ConfigError.exit_code)
        _end(f"stopped: {error}", DpprofError.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _end("stopped", Interrupted.exit_code)
    lost = lost_output()
    if lost is not None:
        _end(f"not all of the output could be written: {lost.strerror}", DpprofError.exit_code)


def _end(message: str, code: int) -> NoReturn:
    complain(f"dpprof: {message}")
    end_process(code)

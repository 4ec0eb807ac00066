"""The errors that dpprof raises on purpose, each with the exit code of the command that ends with it.
And what any error says, as text that can be written anywhere.
"""

_LONGEST_MESSAGE = 10_000


class DpprofError(Exception):
    """An error whose message is meant for the user: printed as one line, without a traceback."""

    exit_code = 1


class ConfigError(DpprofError):
    """An option, a configuration file or the environment is not usable. Nothing was started."""

    exit_code = 2


class WorkloadError(DpprofError):
    """The model, its loss or its batches cannot be trained as they are. Names what to change in them."""


class WeightsError(DpprofError):
    """Weights that should train did not move, or frozen ones did: the run trained something else."""


class EstimateError(DpprofError):
    """A model or an operator cannot run on fake tensors, so that nothing can be estimated."""


class AccountingError(DpprofError):
    """No accountant can certify a privacy budget, or none that can is able to run."""


class CountersError(DpprofError):
    """Hardware counters could not be taken, or a report of them could not be read."""


class CountersUnavailable(CountersError):
    """This machine cannot count: a GPU, a program or a permission is missing."""


class ExperimentsFailed(DpprofError):
    """At least one experiment failed for a reason other than running out of memory."""

    exit_code = 3


class Regression(DpprofError):
    """A comparison with a baseline found something that got worse."""

    exit_code = 4


class TrackingError(DpprofError):
    """MLflow could not be reached or refused a run. The run folders hold everything measured."""

    exit_code = 5


class Undecided(DpprofError):
    """Everything was measured, but a gradient check that was asked for could not tell."""

    exit_code = 6


class Interrupted(DpprofError):
    """The user stopped the command. What was measured before that is kept and logged."""

    exit_code = 130


def message_of(error: BaseException) -> str:
    """What an error says, where it says anything: its `__str__` may fail too. Cut if it is very long."""
    try:
        return writable(str(error)[:_LONGEST_MESSAGE])
    except Exception as fault:
        return f"(its message cannot be had: {type(fault).__name__})"


def describe_error(error: BaseException) -> str:
    """An error's type and what it says."""
    return f"{type(error).__name__}: {message_of(error)}".strip()


def writable(text: str) -> str:
    """The text, with an escape for every character that UTF-8 does not have."""
    return text.encode(errors="backslashreplace").decode()

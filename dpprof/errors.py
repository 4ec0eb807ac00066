"""dpprof's own errors with the exit codes of commands, and error messages as safe text."""

_LONGEST_MESSAGE = 10_000
_LONGEST_SHOWN = 200


class DpprofError(Exception):
    """An error whose message is meant for the user: printed as one line, without a traceback."""

    exit_code = 1


class ConfigError(DpprofError):
    """An option, a configuration file or the environment cannot be used. Nothing was started."""

    exit_code = 2


class WorkloadError(DpprofError):
    """The model, its loss or its batches cannot be trained as they are. Names what to change."""


class WeightsError(DpprofError):
    """Trainable weights did not move or frozen ones did: the run trained something else."""


class EstimateError(DpprofError):
    """A model or an operator cannot run on fake tensors, so there is no estimate."""


class AccountingError(DpprofError):
    """No accountant can certify a privacy budget, or none that could is able to run."""


class CountersError(DpprofError):
    """Hardware counters could not be measured, or their report could not be read."""


class CountersUnavailable(CountersError):
    """This machine cannot count: a GPU, a program or a permission is missing."""


class ExperimentsFailed(DpprofError):
    """At least one experiment failed for a reason other than running out of memory."""

    exit_code = 3


class Regression(DpprofError):
    """A comparison with a baseline found a regression."""

    exit_code = 4


class TrackingError(DpprofError):
    """MLflow could not be reached or refused a run. The run folders hold all measurements."""

    exit_code = 5


class Undecided(DpprofError):
    """Everything was measured, but a requested gradient check could not tell."""

    exit_code = 6


class Interrupted(DpprofError):
    """The user stopped the command. Earlier measurements are kept and logged."""

    exit_code = 130


def message_of(error: BaseException) -> str:
    """Return an error's message, cut if very long; its `__str__` may fail too."""
    try:
        return writable(str(error)[:_LONGEST_MESSAGE])
    except Exception as fault:
        return f"(its message cannot be had: {type(fault).__name__})"


def describe_error(error: BaseException) -> str:
    """Return an error's type and message."""
    return f"{type(error).__name__}: {message_of(error)}".strip()


def writable(text: str) -> str:
    """Escape every character that UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def refuse(name: str, value: object, allowed_words: str) -> ConfigError:
    """Return the error for a bad setting: it names the option, the value and what is allowed."""
    return ConfigError(f"{name}: got {shown(value)}, allowed: {allowed_words}")


def shown(value: object) -> str:
    """Return a bad value for a message: quoted, and cut if long."""
    return repr(shortened(str(value))) if value != "" else "an empty text"


def shortened(text: str, longest: int = _LONGEST_SHOWN) -> str:
    """Cut a foreign text if it is long."""
    return text if len(text) <= longest else f"{text[:longest]}..."

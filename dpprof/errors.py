"""The errors that dpprof raises on purpose, each with the exit code of the command that ends with it."""


class DpprofError(Exception):
    """An error whose message is meant for the user: printed as one line, without a traceback."""

    exit_code = 1


class ConfigError(DpprofError):
    """An option, a configuration file or the environment is not usable. Nothing was started."""

    exit_code = 2


class WorkloadError(DpprofError):
    """The model, its loss or its batches cannot be trained as they are. Names what to change in them."""


class EstimateError(DpprofError):
    """A model or an operator cannot run on fake tensors, so that nothing can be estimated."""


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

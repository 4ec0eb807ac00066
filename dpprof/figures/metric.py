"""A figure with the name that MLflow, TensorBoard and tables know it by."""

from enum import Enum
from typing import NamedTuple


class Logged(Enum):
    """Whether MLflow gets a figure. The record and whatever is exported from it have them all."""

    ALWAYS = "always"
    UNLESS_ZERO = "unless zero"  # 0 in most runs, and then of no interest
    NEVER = "never"  # a detail that the tables and pages of a run tell better


class Metric(NamedTuple):
    """A figure with its name. MLflow shows the metrics of a group together; None was not measured.

    `compares` says that its ratio to standard training's tells what privacy costs.
    """

    group: str
    key: str
    value: float | None
    compares: bool = False
    logged: Logged = Logged.ALWAYS

    @property
    def name(self) -> str:
        """The whole name."""
        return f"{self.group}/{self.key}"

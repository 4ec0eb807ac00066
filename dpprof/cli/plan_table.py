"""The table of a run beside its plan, for the terminal."""

from dpprof.cli.fitted_tables import FittedTable, right, table
from dpprof.figures.plan.beside import beside
from dpprof.record.predicted import Predicted
from dpprof.record.record import Record


def plan_table(predicted: Predicted, record: Record) -> FittedTable:
    """What the plan said, what was measured, and how far that is off."""
    return table(
        f"Beside {predicted.plan}",
        [("", str), ("plan", right), ("measured", right), ("off", right)],
        [(one.name, one.planned, one.measured, one.off) for one in beside(predicted, record)],
    )

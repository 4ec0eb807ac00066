"""What a record says, by metric name."""

from dpprof.record.figures.figures import Figures
from dpprof.record.figures.names import metrics as by_name
from dpprof.record.figures.names import named
from dpprof.record.record import Record


def metrics(record: Record) -> dict[str, float]:
    """The figures of a record that is in no folder."""
    return by_name(named(record, Figures.of(record)))

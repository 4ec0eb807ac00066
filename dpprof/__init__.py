"""dpprof: what differential privacy costs in memory, memory traffic and time."""

__version__ = "0.2.0"

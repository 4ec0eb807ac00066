"""dpprof: what differential privacy costs in memory, memory traffic and time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpprof.measure.workloads.workload import Workload as Workload

__version__ = "0.3.0.dev0"


def __getattr__(name: str) -> Any:
    """`Workload`, which needs torch, is imported when it is asked for."""
    if name == "Workload":
        from dpprof.measure.workloads.workload import Workload

        return Workload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

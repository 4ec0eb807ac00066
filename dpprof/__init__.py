"""dpprof: what differential privacy costs in memory, memory traffic and time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpprof.measure.workloads.workload import Workload as Workload
    from dpprof.own_loop import phase as phase
    from dpprof.own_loop import profile as profile

__version__ = "0.4.0.dev0"


def __getattr__(name: str) -> Any:
    """The names above need torch, and are imported when they are asked for."""
    if name == "Workload":
        from dpprof.measure.workloads.workload import Workload

        return Workload
    if name in ("phase", "profile"):
        from dpprof import own_loop

        return getattr(own_loop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

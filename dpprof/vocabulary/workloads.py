"""The table of workloads, free of torch: what can be trained by name.

Another package adds a workload by an entry point of the group `dpprof.workloads` that names a `WorkloadInfo`.
A workload need not be listed: `package.module:factory` names one too, without options of its own.
"""

from dataclasses import dataclass

from dpprof.vocabulary.registry import table

ENTRY_POINTS = "dpprof.workloads"
BUILT_IN_WORKLOAD = "SimpleBigModel"


@dataclass(frozen=True)
class WorkloadInfo:
    """What is known of a workload without importing it.

    `target` is its factory, `module:function` (`measure/workloads/workload.py` says what it takes and gives).
    `options`, if it has any, is a frozen dataclass of settings (`settings`).
    """

    name: str
    target: str
    options: type | None = None


BUILT_IN = (WorkloadInfo(BUILT_IN_WORKLOAD, "dpprof.measure.workloads.transformer:simple_big_model"),)
WORKLOADS = table(ENTRY_POINTS, WorkloadInfo, BUILT_IN)

"""Description of a workload, known without importing it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkloadInfo:
    """Description of a workload, known without importing it.

    `target` is its factory, `module:function` (see `measure/workloads/workload.py`). `options`, if any, is a
    frozen dataclass of settings (`settings`). `named` describes what must follow its name and a colon, if
    anything. `package`, if needed, comes with dpprof's `extra`; `preload`, `module:function`, imports what
    all its models need. `differs_by_trainer` tells that some trainers get another model, `own_sizes` that the
    experiment's settings do not set its size.
    """

    name: str
    target: str
    options: type | None = None
    named: str = ""
    package: str = ""
    extra: str = ""
    preload: str = ""
    differs_by_trainer: bool = False
    own_sizes: bool = False

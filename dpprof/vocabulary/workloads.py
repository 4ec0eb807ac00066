"""Table of workloads, free of torch: what can be trained by name.

Another package adds a workload by an entry point of the group `dpprof.workloads` that names a `WorkloadInfo`.
`package.module:factory` names an unlisted one, without options of its own.
"""

from dataclasses import dataclass

from dpprof.vocabulary.huggingface import NAMED_HELP, HuggingFaceOptions
from dpprof.vocabulary.registry import table

ENTRY_POINTS = "dpprof.workloads"
BUILT_IN_WORKLOAD = "SimpleBigModel"


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


HUGGING_FACE = "huggingface"
BUILT_IN = (
    WorkloadInfo(BUILT_IN_WORKLOAD, "dpprof.measure.workloads.transformer:simple_big_model"),
    WorkloadInfo(
        HUGGING_FACE,
        "dpprof.measure.workloads.huggingface.factory:hugging_face",
        HuggingFaceOptions,
        NAMED_HELP,
        package="transformers",
        extra="models",
        preload="dpprof.measure.workloads.huggingface.factory:transformers",
        differs_by_trainer=True,
        own_sizes=True,
    ),
)
WORKLOADS = table(ENTRY_POINTS, WorkloadInfo, BUILT_IN)


def listed(workload: str) -> str:
    """Return the listed workload for a name with or without a suffix after a colon; else the name itself."""
    first, separator, _ = workload.partition(":")
    return first if separator and first in WORKLOADS and WORKLOADS[first].named else workload

"""Table of workloads, free of torch: what can be trained by name.

Another package adds a workload by an entry point of the group `dpprof.workloads` that names a `WorkloadInfo`.
`package.module:factory` names an unlisted one, without options of its own.
"""

from dpprof.vocabulary.huggingface import NAMED_HELP, HuggingFaceOptions
from dpprof.vocabulary.registry import table
from dpprof.vocabulary.workload_info import WorkloadInfo

ENTRY_POINTS = "dpprof.workloads"
BUILT_IN_WORKLOAD = "SimpleBigModel"


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

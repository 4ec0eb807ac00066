"""Table of launchers: ways to start a job, without importing their code.

Another package adds a launcher by an entry point of the group `dpprof.launchers` that names a `LauncherInfo`.
The module with that is loaded with the settings: from dpprof it imports only `launcher_info` and `settings`.
"""

from dataclasses import dataclass

from dpprof.vocabulary.launcher_info import LauncherInfo
from dpprof.vocabulary.registry import table
from dpprof.vocabulary.settings import setting

SLURM, LOCAL_SLURM = "slurm", "local"


@dataclass(frozen=True)
class SlurmOptions:
    """Settings of Slurm."""

    slurm_cluster: str = setting(
        SLURM,
        "Where jobs are queued: slurm, or local, which runs them on this machine for a trial.",
        choices=(SLURM, LOCAL_SLURM),
    )
    slurm_partition: str = setting("", "Slurm partition; empty is the cluster's default.")
    slurm_gpus_per_node: int = setting(0, "GPUs of a node; 0: jobs get none and run on the CPU.", minimum=0)
    slurm_ranks_per_node: int = setting(
        0,
        "Ranks on a node at most: an experiment of more goes over several nodes. 0: on GPUs as many as a "
        "node has, on CPUs all.",
        minimum=0,
    )
    slurm_jobs: int = setting(8, "Jobs that wait or run in Slurm at a time.", minimum=1)
    slurm_options: str = setting(
        "", "Other options of sbatch: name=value,name=value, as account=me,constraint=a100,cpus_per_task=8."
    )


ENTRY_POINTS = "dpprof.launchers"
LOCAL = "local"


BUILT_IN = (
    LauncherInfo(LOCAL, "starts a clean process per experiment", "dpprof.drive.launch.local:LocalLauncher"),
    LauncherInfo(
        "in_process",
        "runs it here, for a debugger (no time-out)",
        "dpprof.drive.launch.in_process:InProcessLauncher",
    ),
    LauncherInfo(
        "slurm",
        "submits it to Slurm",
        "dpprof.drive.launch.on_slurm.launcher:SlurmLauncher",
        SlurmOptions,
        package="submitit",
        extra="slurm",
    ),
)
LAUNCHERS = table(ENTRY_POINTS, LauncherInfo, BUILT_IN)

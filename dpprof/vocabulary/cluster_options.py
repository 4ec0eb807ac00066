"""The options of the launchers that run on other machines."""

from dataclasses import dataclass

from dpprof.settings import setting

AUTO, LOCAL_CLUSTER = "auto", "local"


SLURM, LOCAL_SLURM = "slurm", "local"


@dataclass(frozen=True)
class RayOptions:
    """Where Ray is, and how it is used."""

    ray_address: str = setting(
        AUTO,
        "Ray cluster: auto (RAY_ADDRESS, or the one that this machine belongs to), HOST:PORT of its head, or "
        "local, which starts one on this machine alone.",
    )
    max_retries: int = setting(
        1, "How often an experiment is tried again on another node if its own is lost.", minimum=0
    )


@dataclass(frozen=True)
class SlurmOptions:
    """How Slurm is asked for nodes."""

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

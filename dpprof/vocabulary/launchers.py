"""The table of launchers: the ways to start a job, known here without their code.

Another package adds a launcher by an entry point of the group `dpprof.launchers` that names a `LauncherInfo`.
Its module is read with the settings: of dpprof it imports this module and `settings` at most.
"""

from dataclasses import dataclass

from dpprof.vocabulary.cluster_options import RayOptions, SlurmOptions
from dpprof.vocabulary.registry import table

ENTRY_POINTS = "dpprof.launchers"
LOCAL = "local"


@dataclass(frozen=True)
class LauncherInfo:
    """What is known of a launcher without importing it.

    `help` follows its name in `--help`. `target` is its class, `module:ClassName`. `options`, if it has any,
    is a frozen dataclass of settings (`settings`): an instance of it is all that its class is given.
    `package`, if it needs one, comes with dpprof's `extra`.
    """

    name: str
    help: str
    target: str
    options: type | None = None
    package: str = ""
    extra: str = ""


BUILT_IN = (
    LauncherInfo(LOCAL, "starts a clean process per experiment", "dpprof.drive.launch.local:LocalLauncher"),
    LauncherInfo(
        "in_process",
        "runs it here, for a debugger (no time-out)",
        "dpprof.drive.launch.in_process:InProcessLauncher",
    ),
    LauncherInfo(
        "ray",
        "starts it on a node of a Ray cluster",
        "dpprof.drive.launch.on_ray.launcher:RayLauncher",
        RayOptions,
        package="ray",
        extra="ray",
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

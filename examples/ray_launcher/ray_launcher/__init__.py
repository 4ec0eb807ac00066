"""Launches experiments on a Ray cluster. Its nodes share no files, so run folders are sent there and back."""

from dataclasses import dataclass

from dpprof.vocabulary.launcher_info import LauncherInfo
from dpprof.vocabulary.settings import setting

AUTO, LOCAL_CLUSTER = "auto", "local"


@dataclass(frozen=True)
class RayOptions:
    """Settings of Ray."""

    ray_address: str = setting(
        AUTO,
        "Ray cluster: auto (RAY_ADDRESS, or the one that this machine belongs to), HOST:PORT of its head, or "
        "local, which starts one on this machine alone.",
    )
    max_retries: int = setting(
        1, "How often an experiment is tried again on another node if its own is lost.", minimum=0
    )


RAY = LauncherInfo(
    "ray", "starts it on a node of a Ray cluster", "ray_launcher.launcher:RayLauncher", RayOptions
)

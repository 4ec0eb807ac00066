"""The ways to start a measuring process, by name."""

from dpprof.drive.launch import in_process, local
from dpprof.drive.launch.exit import Launch

LAUNCHERS: dict[str, Launch] = {"local": local.launch, "in_process": in_process.launch}

"""The table of launchers: the ways to start a measuring process.

Another package adds a launcher by an entry point of the group `dpprof.launchers` that names a `LauncherInfo`.
"""

from dataclasses import dataclass

from dpprof.vocabulary.registry import table

ENTRY_POINTS = "dpprof.launchers"


@dataclass(frozen=True)
class LauncherInfo:
    """What is known of a launcher without importing it.

    `help` goes on from its name: what it does, in a few words. `target` is its code, `module:attribute`.
    `options`, if it has any, is a frozen dataclass of settings (`config.settings`).
    """

    name: str
    help: str
    target: str
    options: type | None = None


BUILT_IN = (
    LauncherInfo("local", "starts a clean process per experiment", "dpprof.drive.launch.local:launch"),
    LauncherInfo(
        "in_process",
        "runs it here, for a debugger (no time-out)",
        "dpprof.drive.launch.in_process:launch",
    ),
)
LAUNCHERS = table(ENTRY_POINTS, LauncherInfo, BUILT_IN)

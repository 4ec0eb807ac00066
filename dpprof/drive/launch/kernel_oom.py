"""How often the kernel's out-of-memory killer has struck (Linux)."""

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def oom_kill_counts() -> tuple[int, int]:
    """The `oom_kill` counts of this process's cgroup (v2 or v1) and of the whole machine.

    A count that cannot be read is 0. A process killed by SIGKILL ran out of memory only if one of them
    rose meanwhile.
    """
    return _count(_cgroup_file()), _count(_VMSTAT)


def _cgroup_file() -> Path:
    try:
        for line in _OWN_CGROUP.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                return _CGROUP_ROOT / path.lstrip("/") / "memory.events"
            if "memory" in controllers.split(","):
                return _CGROUP_ROOT / "memory" / path.lstrip("/") / "memory.oom_control"
    except (OSError, ValueError):
        pass
    return _CGROUP_ROOT / "memory.events"


def _count(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0

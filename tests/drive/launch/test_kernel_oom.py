from pathlib import Path

import pytest

from dpprof.drive.launch import kernel_oom

EVENTS = "low 0\nhigh 3\nmax 7\noom 5\noom_kill 2\noom_group_kill 9\n"
CONTROL = "oom_kill_disable 1\nunder_oom 4\noom_kill 6\n"
VMSTAT = "nr_free_pages 100\noom_kill 11\npgfault 12\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a single file; tests add what they need."""
    monkeypatch.setattr(kernel_oom, "_VMSTAT", tmp_path / "vmstat")
    monkeypatch.setattr(kernel_oom, "_OWN_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(kernel_oom, "_CGROUP_ROOT", tmp_path / "fs")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_v2(root: Path) -> None:
    write(root / "vmstat", VMSTAT)
    write(root / "cgroup", "0::/user.slice/a:b.scope\n")
    write(root / "fs/user.slice/a:b.scope/memory.events", EVENTS)
    write(root / "fs/memory.events", "oom_kill 100\n")
    assert kernel_oom.oom_kill_counts() == (2, 11)


def test_cgroup_v2_of_a_container(root: Path) -> None:
    write(root / "cgroup", "0::/\n")
    write(root / "fs/memory.events", EVENTS)
    assert kernel_oom.oom_kill_counts() == (2, 0)


def test_cgroup_v1(root: Path) -> None:
    write(root / "vmstat", VMSTAT)
    write(root / "cgroup", "12:cpu,cpuacct:/x\n9:hugetlb,memory:/docker/1f\n1:name=systemd:/y\n0::/z\n")
    write(root / "fs/memory/docker/1f/memory.oom_control", CONTROL)
    write(root / "fs/z/memory.events", EVENTS)
    assert kernel_oom.oom_kill_counts() == (6, 11)


def test_without_a_cgroup_file_the_roots_counts(root: Path) -> None:
    write(root / "fs/memory.events", EVENTS)
    assert kernel_oom.oom_kill_counts() == (2, 0)


def test_what_cannot_be_read_counts_zero(root: Path) -> None:
    assert kernel_oom.oom_kill_counts() == (0, 0)
    write(root / "cgroup", "nonsense\n")
    write(root / "fs/memory.events", "oom_kill many\n")
    write(root / "vmstat", "nr_free_pages 100\n")
    assert kernel_oom.oom_kill_counts() == (0, 0)


def test_the_machines_own_count() -> None:
    vmstat = Path("/proc/vmstat")
    lines = vmstat.read_text().splitlines() if vmstat.exists() else []
    before = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")] or [0]
    assert kernel_oom.oom_kill_counts()[1] >= before[0]
